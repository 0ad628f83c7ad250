"""A device op of any kind is planned and issued by its push, if all ops before it are issued."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from helpers.concurrency.bytecode_freezer import PATIENCE_S
from helpers.engine_programs.runner import kernels

import cudasync as cs
from cudasync.array.allocation import reap
from cudasync.engine.device import device_push
from cudasync.testing import Latch

N = 64
ENGINES = {"plain": {}, "with a trace": {"trace": True}, "with a limit": {"max_in_flight": 1000}}


@pytest.fixture(params=ENGINES.values(), ids=ENGINES)
def engine(request):
    # The one worker can be blocked by a test. A second worker might plan, and so issue, the pushed
    # ops.
    with cs.Engine(workers=1, **request.param) as engine:
        # The first array creates the streams.
        cs.zeros(N, np.int32)
        yield engine


@pytest.fixture
def left(monkeypatch):
    """The names of the ops that take the long way, in order."""
    names: list[str] = []
    go_on = device_push.go_on

    def noted(op):
        names.append(op.name)
        go_on(op)

    monkeypatch.setattr(device_push, "go_on", noted)
    return names


def mix(target, source, n=N):
    one = np.int32(1)
    return kernels(cs.Device(0))["mix"][1, 64](target, source, one, np.uint32(n), one, one)


def test_launches_copies_allocations_and_frees_are_issued_in_their_push(engine, left):
    x, y = cs.array(np.arange(N, dtype=np.int32)), cs.zeros(N, np.int32)
    mix(y, x)
    cs.copy(x, y)
    z = cs.empty(N, np.int32)
    mix(z, y)
    mix(x, z)
    host = cs.pinned_empty(N, np.int32)
    cs.copy(host, x)
    del z
    reap()
    engine.push(lambda stream: None, reads=[x], writes=[y], device=0)
    engine.waitall(PATIENCE_S)
    assert not left


def test_parts_of_an_array_are_issued_in_their_push_once_they_have_histories(engine, left):
    x, y = cs.zeros(N, np.int32), cs.zeros(N, np.int32)
    halves = [x[: N // 2], x[N // 2 :]]
    for half in halves:
        mix(half, half, N // 2)
    left.clear()
    for _ in range(3):
        for half in halves:
            mix(half, half, N // 2)
        # This launch reads two ranges as one.
        mix(y, x)
    engine.waitall(PATIENCE_S)
    assert not left


def test_memory_without_a_history_is_no_reason_to_leave_it(engine, left):
    x = cs.zeros(N, np.int32)
    fresh = [np.empty(N, np.int32) for _ in range(3)]
    for each in fresh:
        engine.push(lambda stream: None, reads=[x], writes=[each], device=0)
    engine.push(lambda stream: None, reads=fresh, device=0)
    engine.waitall(PATIENCE_S)
    assert not left


def test_a_join_of_all_streams_is_issued_in_its_push(engine, left):
    arrays = [cs.zeros(N, np.int32) for _ in range(6)]
    for each in arrays:
        mix(each, each)
    engine.push(lambda stream: None, reads=arrays[1:], writes=arrays[:1], device=0, priority=1)
    engine.push(lambda stream: None, writes=arrays, device=0)
    engine.waitall(PATIENCE_S)
    assert not left


def test_what_another_engine_issued_is_no_reason_to_leave_it(engine, left):
    x = cs.zeros(N, np.int32)
    with cs.Engine() as other:
        mix(x, x)
        other.push(lambda stream: None, writes=[x], device=0)
        left.clear()
        with cs.use(engine):
            mix(x, x)
    assert not left


def test_host_ops_before_it_in_the_log_are_no_reason_to_leave_it(engine, left):
    x, gate, is_running = cs.zeros(N, np.int32), threading.Event(), threading.Event()

    def long():
        is_running.set()
        gate.wait(PATIENCE_S)

    mix(x, x)
    engine.push(long)
    assert is_running.wait(PATIENCE_S)
    for _ in range(3):
        engine.push(lambda: None)
        mix(x, x)
    gate.set()
    engine.waitall(PATIENCE_S)
    assert not left


def test_what_comes_after_a_host_op_that_is_not_over_is_left_to_it(engine, left):
    x, gate = cs.Var("x"), threading.Event()
    engine.push(lambda: gate.wait(PATIENCE_S), writes=[x])
    behind = engine.push(lambda stream: "ran", reads=[x], device=0, name="behind")
    assert left == ["behind"]
    gate.set()
    assert behind.result(PATIENCE_S) == "ran"


def are_readers_behind_their_writer(engine):
    """True if launches that read one array wait for its blocked writer."""
    x, *others = (cs.zeros(N, np.int32) for _ in range(5))
    engine.waitall(PATIENCE_S)
    with Latch(cs.Device(0)) as latch:
        writer = engine.push(latch.hold, writes=[x], device=0)
        # The first reader follows the writer on its stream. The other readers use other streams.
        readers = [mix(other, x) for other in others]
        stream, place = writer._point[:2]
        return all(
            there is stream or behind.get(stream, 0) >= place
            for there, _, _, behind in [reader._point for reader in readers]
        )


def test_launches_beside_each_other_wait_for_what_wrote_what_they_read(engine, left):
    assert are_readers_behind_their_writer(engine)
    assert not left


def test_a_launch_beside_others_that_does_not_wait_is_found(monkeypatch):
    monkeypatch.setattr(device_push, "beside", lambda point, before, group: group.choose(before))
    with cs.Engine() as engine:
        assert not are_readers_behind_their_writer(engine)
