"""Device ops: streams, events and waits, shown by latches and by counts of driver calls."""

from __future__ import annotations

import gc
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from helpers.driver.held_devices import engine_behind

import cudasync as cs
from cudasync.engine.device import device_push
from cudasync.engine.log import node as nodes
from cudasync.engine.log.combiner import COMBINER
from cudasync.testing import Latch

PATIENCE_S = 20.0
KERNELS = Path(__file__).parents[2] / "helpers" / "kernels.ptx"


@pytest.fixture
def engine(latch):
    with engine_behind(latch, streams=3) as engine:
        yield engine


@pytest.fixture
def set_():
    return cs.Module.from_file(KERNELS).kernel("set")


@pytest.fixture
def mix():
    return cs.Module.from_file(KERNELS).kernel("mix")


def held(latch, engine, device, **accesses):
    """A device op that blocks its stream until the latch is released."""
    return engine.push(latch.hold, device=device, name="held", **accesses)


def waits(engine) -> tuple[int, int]:
    return engine.statistics().waits, engine.statistics().events_recorded


def test_a_device_op_is_not_done_before_its_stream_gets_there(engine, device, latch):
    op = held(latch, engine, device)
    assert not op.done()
    with pytest.raises(TimeoutError):
        op.wait(timeout=0.01)
    latch.release()
    op.wait(PATIENCE_S)
    assert op.done()


def test_a_push_never_waits_for_the_device(engine, device, latch, set_):
    x = cs.empty(8, np.int32)
    held(latch, engine, device, writes=[x])
    ops = [set_[1, 32](x, np.int32(i), np.uint32(8)) for i in range(100)]
    assert not any(op.done() for op in ops)
    latch.release()
    assert x.numpy().tolist() == list(range(99, 107))


def test_independent_device_ops_overtake_a_held_one(engine, device, latch, set_):
    x, y = cs.empty(8, np.int32), cs.empty(8, np.int32)
    stuck = held(latch, engine, device, writes=[x])
    set_[1, 32](y, np.int32(5), np.uint32(8)).wait(PATIENCE_S)
    assert not stuck.done()


def test_a_host_op_waits_for_the_device_op_before_it(engine, device, latch):
    x, ran = cs.Var("x"), threading.Event()
    held(latch, engine, device, writes=[x])
    op = engine.push(ran.set, reads=[x])
    bystander = engine.push(lambda: None)
    bystander.wait(PATIENCE_S)
    assert not ran.is_set()
    latch.release()
    op.wait(PATIENCE_S)
    assert ran.is_set()


def test_a_device_op_waits_for_a_host_op_without_holding_the_pusher(engine, device, set_):
    gate, x = threading.Event(), cs.zeros(8, np.int32)
    engine.push(lambda: gate.wait(PATIENCE_S), reads=[x])
    op = set_[1, 32](x, np.int32(1), np.uint32(8))
    assert not op.done()
    chained = set_[1, 32](x, np.int32(2), np.uint32(8))
    assert not chained.done()
    gate.set()
    assert x.numpy().tolist() == list(range(2, 10))


def test_a_chain_stays_on_its_stream_and_needs_no_wait(engine, set_, mix):
    x = cs.zeros(8, np.int32)
    x.wait()
    before = waits(engine)
    for i in range(10):
        mix[1, 32](x, x, np.int32(i), np.uint32(8))
    after = waits(engine)
    assert (after[0] - before[0], after[1] - before[1]) == (0, 10)
    engine.waitall()


def test_a_wait_that_was_made_is_not_made_again(engine, device, latch, mix):
    x, y, z = (cs.zeros(8, np.int32) for _ in range(3))
    engine.waitall()
    held(latch, engine, device, writes=[x])
    held(latch, engine, device, writes=[y])
    count = engine.statistics().waits
    mix[1, 32](z, x, np.int32(1), np.uint32(8))
    mix[1, 32](z, y, np.int32(1), np.uint32(8))
    once = engine.statistics().waits - count
    for _ in range(5):
        mix[1, 32](z, x, np.int32(1), np.uint32(8))
        mix[1, 32](z, y, np.int32(1), np.uint32(8))
    assert engine.statistics().waits - count == once <= 2
    latch.release()


def test_events_are_used_again(engine, set_):
    x = cs.zeros(8, np.int32)
    for i in range(300):
        set_[1, 32](x, np.int32(i), np.uint32(8)).wait(PATIENCE_S)
    statistics = engine.statistics()
    assert statistics.events_recorded > 300
    assert 0 < statistics.events_created < 20


def test_finished_ops_leave_nothing_behind_in_a_program_that_never_waits(engine, set_, device):
    """The test waits for the device, so that the device's speed does not matter."""
    x = cs.zeros(8, np.int32)
    for _ in range(20):
        for value in range(100):
            set_[1, 32](x, np.int32(value), np.uint32(8))
        device.synchronize()
    assert len(engine._registered) < 300
    engine.waitall()
    assert all(op.finished for op in list(engine._registered))
    engine.close()
    assert not engine._registered


def test_an_op_that_raises_poisons_and_later_work_goes_on(engine, device):
    x, y = cs.zeros(8, np.int32), cs.zeros(8, np.int32)

    def fail(stream: cs.Stream) -> None:
        cs.memset_async(x, 1, stream=stream)
        raise ValueError("planned")

    op = engine.push(fail, writes=[x], device=device, name="broken")
    with pytest.raises(cs.OpError, match="broken"):
        x.numpy()
    assert y.numpy().tolist() == [0] * 8
    assert isinstance(op.exception().cause, ValueError)
    engine.clear_errors()
    assert x.numpy().tolist() == [0x01010101] * 8


def test_a_device_ops_function_gets_a_stream_and_its_value_is_the_result(engine, device):
    op = engine.push(lambda stream: type(stream).__name__, device=device)
    assert op.result(PATIENCE_S) == "Stream"


def test_freed_memory_is_reused_only_after_its_last_use(engine, device, latch, set_):
    x = cs.empty(8, np.int32)
    keep = cs.empty(8, np.int32)
    held(latch, engine, device, writes=[x])
    cs.copy(keep, x)
    set_[1, 32](x, np.int32(7), np.uint32(8))
    result = cs.empty(8, np.int32)
    cs.copy(result, x)
    del x
    gc.collect()
    others = [cs.zeros(8, np.int32) for _ in range(20)]
    latch.release()
    assert result.numpy().tolist() == list(range(7, 15))
    assert all(o.numpy().tolist() == [0] * 8 for o in others)


def test_a_loop_of_temporaries_runs_in_bounded_memory(engine):
    for _ in range(24):
        cs.empty(192 << 20, np.uint8).wait()


def test_several_engines_share_arrays(device, latch, set_):
    with cs.Engine() as one, cs.Engine() as two:
        with cs.use(one):
            x = cs.zeros(8, np.int32)
            one.push(latch.hold, writes=[x], device=device)
        with cs.use(two):
            op = set_[1, 32](x, np.int32(3), np.uint32(8))
            host = two.push(lambda: "after", reads=[x])
        assert not op.done()
        latch.release()
        assert host.result(PATIENCE_S) == "after"
        assert x.numpy().tolist() == list(range(3, 11))


def test_a_trace_tells_where_each_op_ran(device, set_):
    with cs.Engine(trace=True) as engine:
        x = cs.array(np.arange(8, dtype=np.int32))
        set_[1, 32](x, np.int32(3), np.uint32(8), name="fill it")
        engine.push(lambda: None, reads=[x], name="look at it")
        entries = {entry.name: entry for entry in engine.trace()}
    assert entries["fill it"].kind == "kernel"
    assert entries["array"].kind == "copy"
    assert entries["look at it"].timeline.startswith("worker")
    assert entries["array"].end_us <= entries["fill it"].start_us < entries["fill it"].end_us


def test_an_op_that_is_poisoned_keeps_later_writers_behind_the_readers_before_it(
    engine, device, latch
):
    x, y, ran = cs.Var("x"), cs.Var("y"), threading.Event()

    def fail() -> None:
        raise ValueError("planned")

    reader = held(latch, engine, device, reads=[x])
    engine.push(fail, writes=[y]).exception(PATIENCE_S)
    poisoned = engine.push(lambda stream: None, reads=[y], writes=[x], device=device)
    writer = engine.push(ran.set, writes=[x])
    on_device = engine.push(lambda stream: None, writes=[x], device=device)
    engine.push(lambda: None).wait(PATIENCE_S)
    assert not ran.is_set()
    latch.release()
    writer.wait(PATIENCE_S)
    on_device.wait(PATIENCE_S)
    assert reader.done()
    assert poisoned.exception(PATIENCE_S) is not None


def test_back_pressure_does_not_hold_back_what_an_op_or_a_callback_pushes(device):
    engine = cs.Engine(max_in_flight=1)
    inner: list[cs.Op] = []
    has_called = threading.Event()

    def called() -> None:
        push()
        has_called.set()

    def push(stream: cs.Stream | None = None) -> None:
        inner.append(engine.push(lambda: "ran"))

    def enqueue(stream: cs.Stream) -> None:
        push()
        engine.push(lambda stream: None, device=device).add_done_callback(called)

    engine.push(enqueue, device=device).wait(PATIENCE_S)
    assert has_called.wait(PATIENCE_S)
    engine.close()
    assert [op.result() for op in inner] == ["ran", "ran"]


def test_back_pressure_waits_for_whichever_op_ends_first(device):
    """The push also returns behind an op that takes long, on the device or on the host."""
    x, y = cs.Var("x"), cs.Var("y")
    gate = threading.Event()
    with Latch(device) as latch, cs.Engine(max_in_flight=3) as engine:

        def end() -> None:
            latch.release()
            gate.set()

        # A push that waits for one of these ops ends in any case.
        late = threading.Timer(PATIENCE_S, end)
        late.start()
        long_ops = [engine.push(latch.hold, writes=[x], device=device), engine.push(gate.wait)]
        for _ in range(8):
            engine.push(lambda stream: None, writes=[y], device=device)
        assert not any(each.done() for each in long_ops)
        late.cancel()
        end()


def test_a_stream_forgets_what_it_knew_of_engines_that_closed(engine, device):
    x = cs.Var("x")
    for _ in range(5):
        with Latch(device) as latch, cs.Engine(streams=1) as other:
            other.push(latch.hold, writes=[x], device=device)
            behind = engine.push(lambda stream: None, reads=[x], device=device)
            latch.release()
        behind.wait(PATIENCE_S)
    timelines = next(iter(engine._issuer.devices.values())).timelines
    assert max(len(timeline.clock) for timeline in timelines) <= 2


def test_an_op_that_somebody_else_entered_and_issued_does_not_come_after_itself(
    engine, device, latch
):
    """A planner is suspended after it entered a device op, before it stores `done`.

    Another thread issues the op. Then the op's pusher goes on, takes over, and enters the op again.
    """
    x = cs.Var("x")
    op = held(latch, engine, device, writes=[x])
    mine = COMBINER.take()
    entries = mine.segment.entries
    place = op.number - mine.segment.base
    entries[place], mine.done = op, place
    with ThreadPoolExecutor(1) as pusher:
        pusher.submit(device_push.go_on, op).result(PATIENCE_S)
    assert op not in nodes.before_of(op)
    latch.release()
    op.wait(PATIENCE_S)
