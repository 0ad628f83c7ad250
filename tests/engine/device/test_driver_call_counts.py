"""The cost of ops in driver calls, counted over all threads, does not creep up.

A launch is one call and at most one event record. A stream waits only for work that it is not yet
ordered behind. No op sets or asks for a context, and no op polls. The tests count warm ops, whose
streams and events exist. Where the count depends on finished ops, a latch blocks the device.
"""

from __future__ import annotations

import gc
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from helpers.driver.call_counts import counted_calls
from helpers.driver.held_devices import engine_behind

import cudasync as cs
from cudasync.array.allocation import reap
from cudasync.driver import Stream
from cudasync.engine.device.polling import POLL_EVERY
from cudasync.engine.device.timeline import Watcher
from cudasync.engine.host.pool import COPIERS
from cudasync.engine.log import planning
from cudasync.engine.observation import every_engine
from cudasync.testing import Latch

PATIENCE_S = 20.0
KERNELS = Path(__file__).parents[2] / "helpers" / "kernels.ptx"
STREAMS = 3
N = 20
# One push in so many may ask how far its stream has come.
OPS_PER_POLL = 20
# Calls that the driver may refuse during the program's stream capture, and calls that cause them.
UNSAFE = {"cuEventQuery", "cuEventSynchronize", "cuEventCreate", "cuStreamIsCapturing"}


@pytest.fixture
def engine(device, latch):
    """A warm engine."""
    with engine_behind(latch, streams=STREAMS) as engine:
        with Latch(device) as first:
            x = cs.Var()
            engine.push(first.hold, device=device, writes=[x])
            for _ in range(4 * N):
                engine.push(lambda stream: None, device=device, reads=[x])
        settle()
        yield engine


@pytest.fixture
def set_():
    return cs.Module.from_file(KERNELS).kernel("set")[1, 32]


@pytest.fixture
def mix():
    return cs.Module.from_file(KERNELS).kernel("mix")[1, 32]


def arrays(count):
    made = [cs.zeros(8, np.int32) for _ in range(count)]
    settle()
    return made


def settle():
    """Finish all ops of all engines, and free unreferenced objects."""
    gc.collect()
    reap()
    for each in every_engine():
        each._drain(None)
    cs.Device(0).synchronize()


@contextmanager
def counting():
    """Count driver calls, except changes of the thread's capture mode.

    Each call that might disturb a stream capture has two such changes around it. They affect only
    the calling thread.
    """
    with counted_calls() as calls:
        yield calls
    modes = calls.pop("cuThreadExchangeStreamCaptureMode", 0)
    # An engine thread may begin a pair before the counting, or end one after it.
    assert modes <= 2 * sum(calls[each] for each in calls if each in UNSAFE) + 2, calls


def counted(verb):
    """The driver calls of the third of three `verb()` calls; the first two warm up."""
    for _ in range(2):
        verb()
        settle()
    with counting() as calls:
        verb()
    return calls


def assert_cost(calls, ops, **exactly):
    """Assert the calls of `ops` ops: at most one record each, an occasional poll, and `exactly`."""
    left = Counter(calls)
    assert left.pop("cuEventRecord", 0) <= ops
    # Earlier ops decide which op polls a stream.
    assert left.pop("cuEventQuery", 0) <= min(ops, ops // OPS_PER_POLL + STREAMS)
    assert dict(left) == exactly


def leave_out_what_a_waiter_asks(calls):
    """Drop the queries of a waiter: the machine's load decides how many there are."""
    calls.pop("cuEventQuery", None)


def check_chain(set_, x):
    calls = counted(lambda: [set_(x, np.int32(i), np.uint32(8)) for i in range(N)])
    assert_cost(calls, N, cuLaunchKernel=N)


def test_a_chain_of_kernels_costs_a_launch_and_a_record_each(engine, set_):
    (x,) = arrays(1)
    check_chain(set_, x)


def test_a_chain_through_several_arrays_waits_for_nothing(engine, mix):
    x, y, z = arrays(3)

    def rotate():
        for i in range(N // 2):
            mix(y, x, np.int32(i), np.uint32(8))
            mix(z, y, np.int32(i), np.uint32(8))

    assert_cost(counted(rotate), N, cuLaunchKernel=N)


def test_independent_kernels_cost_a_launch_and_a_record_each(engine, set_):
    each = arrays(N)
    calls = counted(lambda: [set_(x, np.int32(1), np.uint32(8)) for x in each])
    assert_cost(calls, N, cuLaunchKernel=N)


def test_a_long_program_costs_no_more_per_op_than_a_short_one(engine, set_):
    (x,) = arrays(1)
    many = 50 * N
    calls = counted(lambda: [set_(x, np.int32(i), np.uint32(8)) for i in range(many)])
    # A program far ahead of the device needs new events while no old event is free.
    created = calls.pop("cuEventCreate", 0)
    assert created <= many // 2
    assert calls.pop("cuCtxSetCurrent", 0) <= created
    assert calls.pop("cuEventSynchronize", 0) <= many // N
    assert_cost(calls, many, cuLaunchKernel=many)


def test_the_device_of_a_program_that_waits_now_and_then_is_not_asked(engine, set_):
    (x,) = arrays(1)
    asked = 0
    for _ in range(3):
        with counting() as calls:
            for i in range(POLL_EVERY):
                set_(x, np.int32(i), np.uint32(8))
        asked += calls["cuEventQuery"]
        settle()
    assert asked == 0


def test_ops_that_have_finished_do_not_pile_up_in_a_program_that_never_waits(engine, device, set_):
    (x,) = arrays(1)
    for _ in range(6):
        for i in range(POLL_EVERY):
            set_(x, np.int32(i), np.uint32(8))
        # The engine does not learn of this wait.
        device.synchronize()
    streams = [t for each in engine._issuer.devices.values() for t in each.timelines]
    assert sum(len(each.in_flight) for each in streams) <= 3 * POLL_EVERY


def test_fan_out_and_fan_in_cost_at_most_a_wait_for_each_other_stream(engine, device, latch, mix):
    x, *rest = arrays(2 * STREAMS)
    engine.push(latch.hold, device=device, writes=[x])
    with counting() as calls:
        for y in rest:
            mix(y, x, np.int32(1), np.uint32(8))
    assert 0 < calls.pop("cuStreamWaitEvent") <= STREAMS - 1
    assert_cost(calls, len(rest), cuLaunchKernel=len(rest))
    with counting() as calls:
        engine.push(lambda stream: None, device=device, reads=rest)
    assert 0 < calls.pop("cuStreamWaitEvent") <= STREAMS - 1
    assert_cost(calls, 1)
    # Once each stream is behind all of them, no op waits again.
    with counting() as calls:
        for _ in range(N):
            engine.push(lambda stream: None, device=device, reads=rest)
    assert calls.pop("cuStreamWaitEvent") <= (STREAMS - 1) ** 2
    assert_cost(calls, N)


@pytest.fixture
def questions(monkeypatch):
    """The ops whose end a stream's watcher is to wait for."""
    asked = []
    ask = Watcher.ask

    def noted(self, op, point, report):
        asked.append(op)
        ask(self, op, point, report)

    monkeypatch.setattr(Watcher, "ask", noted)
    return asked


def wait_for_many(engine, device, latch, mix, questions):
    """Wait for N ops on all streams, which are held up at first."""
    x, *rest = arrays(N)
    questions.clear()
    engine.push(latch.hold, device=device, writes=[x])
    for y in rest:
        mix(y, x, np.int32(1), np.uint32(8))
    with pytest.raises(TimeoutError):
        engine.waitall(0.01)
    latch.release()
    engine.waitall()


def test_a_wait_for_many_ops_asks_for_the_last_of_each_stream(
    engine, device, latch, mix, questions
):
    wait_for_many(engine, device, latch, mix, questions)
    assert 0 < len(questions) <= STREAMS


def test_a_wait_that_asks_for_each_op_is_found(engine, device, latch, mix, questions, monkeypatch):
    monkeypatch.setattr(planning, "last_on_streams", list)
    wait_for_many(engine, device, latch, mix, questions)
    assert len(questions) >= N - 1


@pytest.mark.parametrize("call", ["cuMemcpyHtoDAsync", "cuMemcpyDtoHAsync", "cuMemcpyDtoDAsync"])
def test_a_copy_is_one_call_and_a_record(engine, call):
    """A copy of host memory also asks whether the memory is pinned."""
    x, y = arrays(2)
    host = cs.pinned_empty(8, np.int32)
    source, target = {"HtoD": (host, x), "DtoH": (x, host), "DtoD": (x, y)}[call[8:12]]
    calls = counted(lambda: [cs.copy(target, source) for _ in range(N)])
    assert calls.pop("cuPointerGetAttribute", 0) == (0 if "DtoD" in call else N)
    assert_cost(calls, N, **{call: N})


def test_many_copies_of_host_memory_cost_no_more_each(engine):
    (x,) = arrays(1)
    host = np.zeros(8, np.int32)
    many = 10 * N
    calls = counted(lambda: [cs.copy(x, host) for _ in range(many)][-1].wait(PATIENCE_S))
    assert calls.pop("cuPointerGetAttribute") == many
    # A copy asks which earlier copies have read the memory that was set aside for them.
    assert calls.pop("cuEventQuery", 0) <= 2 * many
    # Calls that precede the record of a marker.
    seldoms = ("cuEventCreate", "cuCtxSetCurrent", "cuEventSynchronize", "cuStreamIsCapturing")
    for seldom in seldoms:
        calls.pop(seldom, 0)
    # Occasionally the engine records a marker behind operands that it keeps alive.
    assert calls["cuEventRecord"] <= many + many // 50
    calls["cuEventRecord"] = 0
    assert_cost(calls, many, cuMemcpyHtoDAsync=many)


def test_an_array_costs_its_allocation_and_a_record(engine):
    kept = []
    calls = counted(lambda: kept.append(cs.empty(8, np.int32)))
    assert_cost(calls, 1, cuMemAllocAsync=1)


def test_data_on_its_way_in_waits_for_its_allocation_and_for_nothing_else(engine):
    kept, data = [], np.arange(8)
    calls = counted(lambda: kept.append(cs.array(data)))
    waits = calls.pop("cuStreamWaitEvent", 0)
    assert waits <= 1
    assert_cost(calls, 2, cuMemAllocAsync=1, cuMemcpyHtoDAsync=1)


def test_an_array_that_goes_costs_its_free_and_a_record(engine, set_):
    (x,) = arrays(1)

    def drop():
        # The next use of the library pushes the free: here the launch.
        y = cs.empty(8, np.int32)
        y.wait(PATIENCE_S)
        del y
        with counting() as calls:
            set_(x, np.int32(1), np.uint32(8))
        return calls

    for _ in range(3):
        calls = drop()
        engine.waitall()
    assert calls.pop("cuStreamWaitEvent", 0) <= 1
    assert_cost(calls, 2, cuMemFreeAsync=1, cuLaunchKernel=1)


def test_to_ask_is_one_query_and_nothing_once_the_answer_is_known(engine, device, latch, set_):
    (x,) = arrays(1)
    engine.push(latch.hold, device=device, writes=[x])
    op = set_(x, np.int32(1), np.uint32(8))
    for _ in range(3):
        with counting() as calls:
            assert not op.done()
        assert sum(calls.values()) <= 1
        assert set(calls) <= {"cuEventQuery", "cuStreamQuery"}
    latch.release()
    op.wait(PATIENCE_S)
    with counting() as calls:
        assert op.done()
        op.wait(PATIENCE_S)
        x.wait(PATIENCE_S)
    assert not calls


def test_to_wait_is_one_call_that_blocks(engine, set_):
    (x,) = arrays(1)
    calls = counted(lambda: set_(x, np.int32(1), np.uint32(8)).wait(PATIENCE_S))
    synchronized = calls.pop("cuEventSynchronize", 0) + calls.pop("cuStreamSynchronize", 0)
    assert synchronized <= 1
    leave_out_what_a_waiter_asks(calls)
    assert_cost(calls, 1, cuLaunchKernel=1)


def test_to_read_an_array_is_one_copy_and_one_wait(engine):
    (x,) = arrays(1)
    reads = COPIERS + 1
    calls = counted(lambda: [x.numpy() for _ in range(reads)])
    assert calls.pop("cuEventSynchronize", 0) + calls.pop("cuStreamSynchronize", 0) <= reads
    # Any thread of the pool may issue a copy, and makes the context current before its first one.
    assert calls.pop("cuCtxSetCurrent", 0) <= COPIERS
    leave_out_what_a_waiter_asks(calls)
    assert_cost(calls, reads, cuMemcpyDtoHAsync=reads)


# Each entry makes one driver call too many for a launch.
CREEPING = {
    "the stream is asked": lambda stream: stream.query(),
    "an event is recorded twice": lambda stream: stream._record_tail(),
    "a wait for oneself": lambda stream: stream.wait(stream._tail or stream._record_tail()),
    "the context is set": lambda stream: stream.device.use(),
    "the stream is synchronized": lambda stream: stream.synchronize(),
}


@pytest.mark.parametrize("creep", CREEPING.values(), ids=CREEPING)
def test_one_call_too_many_for_each_launch_is_found(engine, set_, monkeypatch, creep):
    (x,) = arrays(1)
    launch = cs.BoundKernel.__call__

    def dearer(self, *args):
        op = launch(self, *args)
        creep(streams[0])
        return op

    streams = [Stream(cs.Device(0))]
    monkeypatch.setattr(cs.BoundKernel, "__call__", dearer)
    with pytest.raises(AssertionError):
        check_chain(set_, x)
