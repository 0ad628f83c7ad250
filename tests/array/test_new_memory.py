"""New memory at an old address has nothing to do with what failed there.

A reset ends memory whose end nobody hears of: arrays refer to it still, so the engine knows them.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np
import pytest
from helpers.concurrency.thread_crew import PATIENCE_S, engine_of

import cudasync as cs
from cudasync.driver.memory import allocations

SIZE = 4096


def fail(*_) -> None:
    raise ValueError("as asked")


def make(kind: str, device: cs.Device):
    """Memory of that kind, and its address."""
    if kind == "pinned":
        array = cs.PinnedBuffer(SIZE, device).view(SIZE, np.uint8)
        return array, array.ctypes.data
    if kind == "buffer":
        buffer = cs.DeviceBuffer(SIZE, device)
        return buffer, buffer.ptr
    array = cs.empty(SIZE, np.uint8, device=device)
    return array, array.ptr


def until_handed_out_again(kind: str, device: cs.Device, addresses: Sequence[int]):
    """Memory of that kind at one of those addresses, which are free; None if none comes."""
    kept = []
    for _ in range(40):
        # On the software GPU, what was freed is kept back until much has been freed since.
        cs.DeviceBuffer(64 << 20, device).close()
        for _ in range(100):
            thing, at = make(kind, device)
            if any(at <= address < at + SIZE for address in addresses):
                return thing
            kept.append(thing)
    return None


@pytest.fixture
def device():
    device = cs.Device(0)
    yield device
    device.reset()


@pytest.mark.parametrize("kind", ["pinned", "buffer", "array"])
@pytest.mark.parametrize("is_planned", [True, False])
def test_memory_after_a_reset_is_not_poisoned_by_what_failed_at_its_address(
    kind, is_planned, device
):
    gate = threading.Event()
    with engine_of(workers=1) as engine:
        # Many: whoever else allocates may be given one of the addresses for good.
        olds, addresses = zip(*[make(kind, device) for _ in range(50)], strict=True)
        # While its one worker is held the op is in the log, and in no map.
        if not is_planned:
            engine.push(lambda: gate.wait(PATIENCE_S))
        broken = engine.push(fail, writes=olds)
        if is_planned:
            broken.exception(PATIENCE_S)
        device.reset()
        new = until_handed_out_again(kind, device, addresses)
        assert new is not None or not device.is_software
        gate.set()
        if new is not None:
            assert engine.push(lambda: "read", reads=[new]).result(PATIENCE_S) == "read"
        assert isinstance(broken.exception(PATIENCE_S).cause, ValueError)
        engine.clear_errors()


def test_a_program_that_pushes_nothing_writes_nothing_into_the_log():
    log = allocations.ALLOCATIONS.tells.__self__.log
    cs.waitall()
    cs.zeros(4).numpy()
    cs.waitall()
    end = log.end
    # Where freed memory that was pushed comes again, that is said.
    kept = [cs.PinnedBuffer(SIZE) for _ in range(4)] + [cs.DeviceBuffer(SIZE) for _ in range(4)]
    assert log.end - end <= len(kept) // 2
