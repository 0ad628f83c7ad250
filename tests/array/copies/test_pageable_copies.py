"""Copies from and to pageable host memory, in which the driver may wait: no push waits.

If a waiting push would hang the test, a thread makes the push, and the test gives up the thread.
"""

from __future__ import annotations

import threading

import numpy as np
import pytest
from helpers.concurrency.thread_crew import PATIENCE_S
from helpers.driver.held_devices import engine_behind

import cudasync as cs
from cudasync.testing import HostLatch

WILD = """
.version 6.4
.target sm_75
.address_size 64
.visible .entry wild(.param .u64 target, .param .u64 beyond)
{
    .reg .b64 %rd_target, %rd_beyond;
    ld.param.u64 %rd_target, [target];
    ld.param.u64 %rd_beyond, [beyond];
    add.s64 %rd_target, %rd_target, %rd_beyond;
    st.global.u32 [%rd_target], 1;
    ret;
}
"""


@pytest.fixture
def engine(latch):
    with engine_behind(latch, workers=1) as engine:
        yield engine


def returns(act):
    """The result of `act()` on a thread with the same current engine; fails if it blocks."""
    found, engine = [], cs.engine()

    def run():
        with cs.use(engine):
            found.append(act())

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(PATIENCE_S / 4)
    assert found, "the call waits"
    return found[0]


def hold(engine, latch, *arrays):
    return engine.push(latch.hold, device=cs.Device(0), writes=arrays, reads=arrays)


def copy_out(x, host):
    return lambda: cs.copy(host, x)


def copy_in(x, host):
    return lambda: cs.copy(x, host)


@pytest.mark.parametrize("way", [copy_out, copy_in])
def test_a_copy_behind_work_of_the_device_returns_at_once(engine, latch, way):
    x, host = cs.array(np.arange(4)), np.full(4, 7)
    held = hold(engine, latch, x)
    op = returns(way(x, host))
    # No other push waits either, although it might have issued the copy.
    assert returns(lambda: engine.push(lambda: 5).result()) == 5
    assert returns(lambda: cs.array([3]).numpy().tolist()) == [3]
    assert not op.done()
    assert not held.done()
    latch.release()
    op.wait(PATIENCE_S)
    assert host.tolist() == x.numpy().tolist() == ([0, 1, 2, 3] if way is copy_out else [7] * 4)


@pytest.mark.parametrize("way", [copy_out, copy_in])
def test_who_makes_the_copy_ready_does_not_wait_for_it(engine, latch, way):
    """The copy is behind a host op and device work. The worker that ends the host op goes on."""
    x, host = cs.array(np.arange(4)), np.full(4, 7)
    with HostLatch() as gate:
        hold(engine, latch, x)
        engine.push(gate.wait, writes=[host])
        op = returns(way(x, host))
        gate.release()
        assert returns(lambda: engine.push(lambda: 5).result()) == 5
        assert returns(lambda: engine.push(lambda s: None, device=0).wait()) is None
        assert not op.done()
    latch.release()
    op.wait(PATIENCE_S)
    assert host.tolist() == x.numpy().tolist()


def test_what_is_read_is_as_of_the_copy_and_what_comes_later_waits_for_it(engine, latch):
    x, y, host, other = cs.array([1, 2]), cs.array([3, 4]), np.zeros(2, int), np.array([5, 6])
    hold(engine, latch, x)

    def program():
        cs.copy(host, x)
        cs.copy(x, other)
        doubled = engine.push(lambda: (2 * host).tolist(), reads=[host])
        cs.copy(y, host)
        engine.push(lambda: host.fill(9), writes=[host])
        engine.push(lambda: other.fill(9), writes=[other])
        return doubled

    doubled = returns(program)
    latch.release()
    assert doubled.result(PATIENCE_S) == [2, 4]
    assert y.numpy().tolist() == [1, 2]
    assert x.numpy().tolist() == [5, 6]
    engine.waitall(PATIENCE_S)
    assert (host.tolist(), other.tolist()) == ([9, 9], [9, 9])


def test_one_that_is_held_holds_no_other(engine, latch):
    """There are more such copies than threads for them, each behind its own work."""
    held = [cs.array([n]) for n in range(5)]
    hosts = [np.zeros(1, int) for _ in held]
    for x in held:
        hold(engine, latch, x)
    ops = returns(lambda: [cs.copy(host, x) for host, x in zip(hosts, held, strict=True)])
    free, host = cs.array([8]), np.zeros(1, int)
    returns(lambda: cs.copy(host, free).wait(PATIENCE_S))
    assert host.tolist() == [8]
    assert not any(op.done() for op in ops)
    latch.release()
    engine.waitall(PATIENCE_S)
    assert [host.item() for host in hosts] == [0, 1, 2, 3, 4]


def test_a_read_of_an_array_holds_up_its_caller_only(engine, latch):
    x = cs.array([1, 2])
    hold(engine, latch, x)
    found = []
    reader = threading.Thread(target=lambda: found.append(x.numpy().tolist()))
    reader.start()
    assert returns(lambda: engine.push(lambda s: None, device=0).wait()) is None
    assert returns(lambda: cs.array([3]).numpy().tolist()) == [3]
    assert not found
    latch.release()
    reader.join(PATIENCE_S)
    assert found == [[1, 2]]


def test_back_pressure_counts_them(latch):
    x, host = cs.array([1, 2]), np.zeros(2, int)
    with cs.Engine(max_in_flight=2) as engine:
        hold(engine, latch, x)
        returns(lambda: cs.copy(host, x))
        third = threading.Thread(target=lambda: engine.push(lambda: None))
        third.start()
        third.join(0.05)
        assert third.is_alive()
        latch.release()
        third.join(PATIENCE_S)
        assert not third.is_alive()
    assert host.tolist() == [1, 2]


def test_they_are_copies_of_the_device_in_statistics_and_trace():
    with cs.Engine(trace=True) as engine:
        x, host = cs.empty(4, np.int64), np.arange(4)
        cs.copy(x, host, name="in")
        cs.copy(host, x, name="out").wait(PATIENCE_S)
        x.numpy()
        found = {each.name: each for each in engine.trace()}
        assert {found[name].kind for name in ("in", "out", "numpy")} == {"copy"}
        assert all(found[name].timeline.startswith("device 0") for name in ("in", "out", "numpy"))
        assert found["in"].end_us <= found["out"].start_us
        # The device ops are the allocation and these three.
        assert engine.statistics().device_ops >= 4
        assert engine.statistics().host_ops == 0


@pytest.mark.parametrize("mode", ["async", "serial"])
def test_poison_comes_through_them_and_a_copy_in_heals(mode):
    with cs.Engine(mode) as engine:
        x, host = cs.zeros(2), np.ones(2, np.float32)
        engine.push(lambda: 1 / 0, writes=[x], name="spoil")
        for act in (lambda: cs.copy(host, x).wait(), x.numpy):
            with pytest.raises(cs.OpError, match="spoil"):
                act()
        engine.clear_errors()
        engine.push(lambda: 1 / 0, writes=[x], name="spoil")
        cs.copy(x, np.ones(2, np.float32)).wait()
        assert x.numpy().tolist() == [1, 1]
        engine.clear_errors()


@pytest.mark.loses_device
def test_on_a_device_that_is_lost_they_fail_as_all_else_does():
    device = cs.Device(0)
    wild = cs.Module.from_ptx(WILD).kernel("wild")[1, 1]
    with cs.Engine() as engine:
        x, y, host = cs.zeros(8, np.int32), cs.zeros(8, np.int32), np.zeros(8, np.int32)
        engine.waitall()
        lost = wild(x, np.uint64(1 << 40), name="lost")
        for act in (lambda: cs.copy(host, x).wait(), x.numpy):
            with pytest.raises(cs.OpError, match="lost"):
                act()
        assert isinstance(lost.exception().cause, cs.CudaError)
        # Independent work is lost, too, and its error names the cause.
        with pytest.raises(cs.OpError, match="lost"):
            cs.copy(host, y).wait()
        engine.clear_errors()
        device.reset()
        z = cs.zeros(8, np.int32)
        cs.copy(z, host).wait()
        assert z.numpy().tolist() == [0] * 8
