"""A program captures its own stream while the engine works, and the capture stays valid."""

from __future__ import annotations

import gc
import threading
from pathlib import Path

import numpy as np
import pytest
from cuda.bindings import driver
from helpers.driver.stream_capture import ACTIVE, GLOBAL, RELAXED, THREAD_LOCAL, begin, end, status

import cudasync as cs
from cudasync.driver.streams import open_captures
from cudasync.engine.device.polling import POLL_EVERY

KERNELS = Path(__file__).parents[2] / "helpers" / "kernels.ptx"
MODES = pytest.mark.parametrize(
    "mode", [GLOBAL, THREAD_LOCAL, RELAXED], ids=["global", "thread-local", "relaxed"]
)


def work(engine):
    """Make the engine call the driver: polls, waits, reads, allocations, frees and streams."""
    kernel = cs.Module.from_file(KERNELS).kernel("mix")[1, 8]
    with cs.use(engine):
        x, y = cs.array(np.arange(8, dtype=np.int32)), cs.zeros(8, np.int32)
        for _ in range(2 * POLL_EVERY):
            kernel(y, x, np.int32(2), np.uint32(8))
        # The engine asks whether more streams are of use, and makes some.
        for each in [cs.zeros(8, np.int32) for _ in range(12)]:
            kernel(each, x, np.int32(2), np.uint32(8))
        engine.push(lambda: None, reads=[y]).wait()
        assert cs.copy(x, y).done() in (True, False)
        assert x.numpy().tolist() == y.numpy().tolist()
        del x, y
        gc.collect()
        cs.zeros(8)
        engine.waitall()
        engine.statistics()


@MODES
@pytest.mark.parametrize(("is_elsewhere", "is_traced"), [(False, False), (True, True)])
def test_a_capture_stays_whole_while_the_engine_works(mode, is_elsewhere, is_traced):
    with cs.Engine(trace=is_traced) as engine:
        work(engine)
        stream = cs.Stream()
        raw = driver.CUstream(stream.handle)
        begin(raw, mode)
        if is_elsewhere:
            failed = []

            def run():
                try:
                    work(engine)
                except Exception as error:
                    failed.append(error)

            thread = threading.Thread(target=run)
            thread.start()
            thread.join()
            assert not failed, failed
        else:
            work(engine)
        assert status(raw) == ACTIVE
        driver.cuGraphDestroy(end(raw))


def test_an_engine_that_asks_the_usual_way_is_found(monkeypatch):
    with cs.Engine() as engine:
        stream = cs.Stream()
        raw = driver.CUstream(stream.handle)
        monkeypatch.setattr(open_captures, "exchange", lambda mode: mode)
        begin(raw, GLOBAL)
        with pytest.raises((cs.OpError, cs.CudaError), match="CAPTURE"):
            work(engine)
        assert status(raw) != ACTIVE
        driver.cuStreamEndCapture(raw)
        monkeypatch.undo()
        engine.clear_errors()
