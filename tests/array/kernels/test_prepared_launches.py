"""Launches that are prepared once and pushed repeatedly."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest

import cudasync as cs
from cudasync.testing import Latch

KERNELS = Path(__file__).parents[2] / "helpers" / "kernels.ptx"
PATIENCE_S = 20.0


@pytest.fixture
def engine():
    with cs.Engine() as engine:
        yield engine


@pytest.fixture
def mix():
    """mix(target, source, factor, n): target = 31 * target + factor * source + index."""
    return cs.Module.from_file(KERNELS).kernel("mix")


def prepared(mix: cs.Kernel, target: object, source: object) -> cs.PreparedLaunch:
    return mix.prepare(grid=1, block=8, args=(target, source, np.int32(2), np.uint32(8)))


def mixed(target: np.ndarray, source: np.ndarray) -> np.ndarray:
    return (31 * target + 2 * source + np.arange(8)).astype(np.int32)


def test_each_push_is_an_op_of_its_own_with_the_arguments_as_they_were(engine, mix):
    x, y = cs.array(np.arange(8, dtype=np.int32)), cs.zeros(8, np.int32)
    launch = prepared(mix, y, x)
    ops = [launch.push(name=f"push {i}") for i in range(3)]
    assert len(set(ops)) == 3
    assert [op.name for op in ops] == ["push 0", "push 1", "push 2"]
    expected = np.zeros(8, np.int32)
    for _ in range(3):
        expected = mixed(expected, np.arange(8))
    assert y.numpy().tolist() == expected.tolist()


def test_pushes_of_prepared_launches_are_ordered_with_everything_else(engine, mix):
    """The other work is on other streams, in host ops, on views, and on changed ranges."""
    x, y, z = (cs.array(np.full(8, i, np.int32)) for i in range(3))
    host = [np.full(8, i, np.int32) for i in range(3)]
    launches = {(a, b): prepared(mix, (x, y, z)[a], (x, y, z)[b]) for a, b in [(0, 1), (1, 2)]}
    for turn in range(30):
        for (a, b), launch in launches.items():
            launch.push()
            host[a] = mixed(host[a], host[b])
        if turn % 5 == 1:
            cs.copy(z[2:6], np.full(4, turn, np.int32))
            host[2][2:6] = turn
        if turn % 7 == 2:
            # This splits and joins ranges, and reuses the addresses of dead arrays.
            cs.zeros(8, np.int32)
            mix[1, 4](y[4:], x[:4], np.int32(1), np.uint32(4))
            host[1][4:] = 31 * host[1][4:] + host[0][:4] + np.arange(4)
        if turn % 11 == 3:
            engine.push(lambda: None, reads=[x], writes=[y]).wait(PATIENCE_S)
    for array, expected in zip((x, y, z), host, strict=True):
        assert array.numpy().tolist() == expected.tolist()


def test_a_prepared_launch_waits_for_a_host_op_and_a_host_op_for_it(engine, mix):
    x, y = cs.zeros(8, np.int32), cs.zeros(8, np.int32)
    launch, gate, log = prepared(mix, y, x), threading.Event(), []
    launch.push().wait(PATIENCE_S)
    engine.push(lambda: gate.wait(PATIENCE_S), writes=[x])
    op = launch.push()
    engine.push(lambda: log.append(op.done()), reads=[y])
    assert not op.done()
    gate.set()
    engine.waitall(PATIENCE_S)
    assert log == [True]


def test_a_prepared_launch_keeps_its_arrays_alive(engine, mix):
    x, y = cs.array(np.ones(8, np.int32)), cs.zeros(8, np.int32)
    launch = prepared(mix, y, x)
    del x
    others = [cs.array(np.full(8, 9, np.int32)) for _ in range(4)]
    launch.push()
    assert y.numpy().tolist() == mixed(np.zeros(8), np.ones(8)).tolist()
    del others


def test_an_argument_may_be_narrowed(engine, mix):
    device = cs.Device(0)
    x, y = cs.array(np.ones(8, np.int32)), cs.zeros(8, np.int32)
    engine.push(fail, writes=[y])
    healing = mix.prepare(grid=1, block=8, args=(cs.Out(y), x, np.int32(2), np.uint32(8)))
    healing.push().wait(PATIENCE_S)
    with pytest.raises(cs.OpError):
        engine.waitall(PATIENCE_S)
    engine.clear_errors()
    # A launch that only reads does not wait for another reader.
    with Latch(device) as latch:
        engine.push(latch.hold, reads=[x], device=device)
        prepared(mix, y, cs.In(x)).push().wait(PATIENCE_S)
        latch.release()


def fail() -> None:
    raise ValueError("planned")


def test_the_push_site_of_a_prepared_launch_is_where_it_was_pushed(engine, mix):
    launch = prepared(mix, cs.zeros(8, np.int32), cs.zeros(8, np.int32))
    assert Path(__file__).name in launch.push().push_site


def test_wrong_arguments_are_refused_when_the_launch_is_prepared(engine, mix):
    x = cs.zeros(8, np.int32)
    with pytest.raises(TypeError, match="takes 4 arguments"):
        mix.prepare(grid=1, block=8, args=(x, x))
    with pytest.raises(ValueError, match="block"):
        mix.prepare(grid=1, block=5000, args=(x, x, np.int32(1), np.uint32(8)))


def test_a_prepared_launch_runs_on_a_serial_and_on_a_tracing_engine(mix):
    for engine in (cs.Engine("serial"), cs.Engine(trace=True), cs.Engine(max_in_flight=2)):
        with engine:
            x, y = cs.array(np.ones(8, np.int32)), cs.zeros(8, np.int32)
            launch = prepared(mix, y, x)
            for _ in range(5):
                launch.push(priority=1)
            expected = np.zeros(8, np.int32)
            for _ in range(5):
                expected = mixed(expected, np.ones(8, np.int32))
            assert y.numpy().tolist() == expected.tolist()


def test_a_closed_engine_refuses_a_prepared_launch(mix):
    with cs.Engine() as engine:
        launch = prepared(mix, cs.zeros(8, np.int32), cs.zeros(8, np.int32))
    with cs.use(engine), pytest.raises(cs.ClosedError):
        launch.push()


def test_threads_that_push_one_prepared_launch_at_once_lose_none(engine, mix):
    x, y = cs.zeros(8, np.int32), cs.zeros(8, np.int32)
    launch = mix.prepare(grid=1, block=8, args=(y, x, np.int32(0), np.uint32(8)))
    start = threading.Barrier(4)

    def push() -> None:
        start.wait(PATIENCE_S)
        with cs.use(engine):
            for _ in range(50):
                launch.push()

    threads = [threading.Thread(target=push) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    expected = np.zeros(8, np.int32)
    for _ in range(200):
        expected = 31 * expected + np.arange(8, dtype=np.int32)
    assert y.numpy().tolist() == expected.tolist()


def test_what_reads_overlapping_views_is_waited_for_by_a_writer_of_either(engine):
    """Two views share bytes. Neither view may hide the reader from the rest of the other view."""
    a, gate, log = np.zeros(100, np.uint8), threading.Event(), []

    def read() -> None:
        gate.wait(PATIENCE_S)
        log.append("read")

    engine.push(read, reads=[a, a[50:60]])
    for part in (a[:50], a[50:60], a[60:]):
        engine.push(lambda: log.append("write"), writes=[part])
    engine.push(lambda: log.append("beside")).wait(PATIENCE_S)
    assert log == ["beside"]
    gate.set()
    engine.waitall(PATIENCE_S)
    assert log == ["beside", "read", "write", "write", "write"]
