"""Loops of launches whose numbers change in each round: a step count, a time, a rate."""

from __future__ import annotations

import gc

import numpy as np
import pytest
from helpers.concurrency.bytecode_freezer import PATIENCE_S, Freezer, end_tracing, is_library
from helpers.driver.call_counts import counted_calls
from helpers.engine_programs.repeated_launches import Loop

import cudasync as cs
from cudasync.array.kernels import kernel as kernels
from cudasync.array.replay import ChangingPiece
from cudasync.driver import Launch
from cudasync.engine.replay.run import JoinedLaunch, Run
from cudasync.engine.replay.sequence import UNIT, CallByCall
from cudasync.engine.replay.tape import CHANGING, LOCAL

# In the library, for four arguments, on Python 3.11, as without numbers that change.
MOST_MATCHED = 125
# After so many launches a loop is replayed.
LIMIT = CHANGING + 2 * UNIT

pytestmark = pytest.mark.usefixtures("no_launch_is_too_slow")


def counting(loop, start=0):
    """The launches of `loop`, each with the next number."""
    number = start
    while True:
        number += 1
        yield loop(number)


@pytest.fixture
def launches(mix, engine):
    """A loop with a step count, and its launches, from the first that is replayed on."""
    loop = Loop(mix)
    made = counting(loop)
    for _ in range(LIMIT):
        op = next(made)
        if "replays" in engine.replay_report():
            break
    else:
        raise AssertionError(engine.replay_report())
    engine.waitall(PATIENCE_S)
    assert not isinstance(op, JoinedLaunch)
    return loop, made


def test_each_launch_has_the_number_of_its_round(launches, engine):
    loop, made = launches
    for _ in range(3 * UNIT):
        assert isinstance(next(made), JoinedLaunch)
    loop.check()
    report = engine.replay_report()
    assert "replays 1 launches" in report
    assert "1 of them with other numbers each time" in report


def test_a_whole_run_is_one_launch_of_the_driver(launches, engine):
    _, made = launches
    for _ in range(UNIT):
        next(made)
    engine.waitall(PATIENCE_S)
    with counted_calls() as calls:
        for _ in range(UNIT):
            next(made)
    counted = [
        calls[name]
        for name in ("cuGraphLaunch", "cuLaunchKernel", "cuGraphExecKernelNodeSetParams")
    ]
    assert counted == [1, 0, UNIT]


def test_only_the_launches_that_change_are_changed(mix, engine):
    loops = [Loop(mix) for _ in range(4)]
    for number in range(CHANGING):
        for at, loop in enumerate(loops):
            loop(number if at == 2 else 5)
    engine.waitall(PATIENCE_S)
    with counted_calls() as calls:
        for number in range(UNIT // 4):
            for at, loop in enumerate(loops):
                assert isinstance(loop(7 * number if at == 2 else 5), JoinedLaunch)
        engine.waitall(PATIENCE_S)
    counted = [calls[name] for name in ("cuGraphLaunch", "cuGraphExecKernelNodeSetParams")]
    assert counted == [1, UNIT // 4]
    for loop in loops:
        loop.check()


def test_a_number_that_begins_to_change_is_let_change(loop, engine):
    """It was the same in each round; from now on each round has another."""
    made = counting(loop, start=2)
    joined = [isinstance(next(made), JoinedLaunch) for _ in range(2 * UNIT)]
    assert sum(joined) >= 2 * UNIT - 4
    engine.waitall(PATIENCE_S)
    assert engine.statistics().missed_numbers <= 4
    loop.check()


def test_rounds_of_numbers_that_repeat_are_rounds_of_equal_launches(mix, engine):
    """Nothing has to be changed in a graph."""
    loop = Loop(mix)
    for _ in range(40):
        for number in range(5):
            loop(number)
    assert "replays 5 launches" in engine.replay_report()
    with counted_calls() as calls:
        for _ in range(UNIT):
            for number in range(5):
                loop(number)
        engine.waitall(PATIENCE_S)
    assert not calls["cuGraphExecKernelNodeSetParams"]
    loop.check()


@pytest.mark.parametrize("wrong", [2**40, 1.5, "two"])
def test_a_wrong_number_raises_at_its_call(launches, wrong):
    loop, made = launches
    next(made)
    with pytest.raises((TypeError, ValueError), match="argument 3"):
        loop.mix[1, 8](loop.x, loop.y, wrong, 8)
    next(made)
    loop.check()


def test_numbers_of_another_class_are_pushed(launches):
    loop, made = launches
    next(made)
    assert not isinstance(loop(np.int32(4)), JoinedLaunch)
    loop.check()


def test_numbers_of_numpy_may_change(mix, engine):
    loop = Loop(mix)
    for number in range(LIMIT):
        op = loop(np.int32(number))
    assert isinstance(op, JoinedLaunch)
    loop.check()


def test_a_launch_whose_number_changes_costs_few_bytecodes(launches):
    loop, _ = launches
    x, y, mix = loop.x, loop.y, loop.mix
    costs = []
    for number in range(LIMIT + 4 * UNIT):
        joins = LOCAL.tape.length >= 0 and LOCAL.tape.step.following is not None
        freezer = Freezer(None, is_library)
        try:
            with freezer:
                op = mix[1, 8](x, y, number, 8)
        finally:
            end_tracing()
        if joins and isinstance(op, JoinedLaunch):
            costs.append(freezer.points)
    assert len(costs) > UNIT
    assert sorted(costs)[len(costs) // 2] <= MOST_MATCHED


def test_without_damaged_data_launches_have_their_own_numbers(mix, engine):
    """Two chains in one run, of which one has failed: the other goes on, call by call."""
    loops = [Loop(mix), Loop(mix)]
    for number in range(CHANGING):
        for loop in loops:
            loop(number)
    engine.waitall(PATIENCE_S)
    broken, whole = loops

    def fail():
        raise ValueError("planted")

    engine.push(fail, writes=[broken.x])
    ops = [loop(100 + number) for number in range(3) for loop in loops]
    assert isinstance(ops[2], JoinedLaunch)
    whole.check()
    with pytest.raises(cs.OpError, match="planted"):
        broken.x.numpy()
    engine.clear_errors()


@pytest.mark.parametrize("is_graph", [True, False])
def test_two_runs_that_are_issued_at_once_have_their_own_numbers(launches, is_graph):
    """Two threads issue runs of one sequence: neither changes what the other is about to launch."""
    loop, _ = launches
    steps = LOCAL.tape.sequence.steps[:3]
    device = loop.x.device
    piece = ChangingPiece(steps, device) if is_graph else CallByCall(steps)
    idle = piece._graph._idle if is_graph else piece._idle
    stream = cs.Stream(device)

    def issue(first):
        numbers = range(first, first + len(steps))
        given = [(loop.x, loop.y, each, 8) for each in numbers]
        piece.enqueue(
            stream, None, [step.takes(args) for step, args in zip(steps, given, strict=True)]
        )
        for each in numbers:
            loop.wanted = 31 * loop.wanted + each * loop.index + loop.index

    issue(10)
    held = idle.pop()
    assert not idle
    issue(20)
    assert held not in idle
    idle.append(held)
    issue(30)
    assert len(idle) == 2
    stream.synchronize()
    loop.check()


def test_a_sequence_keeps_no_memory_of_its_runs(launches, engine):
    _, made = launches

    def held():
        gc.collect()
        return sum(isinstance(each, (Run, JoinedLaunch, Launch)) for each in gc.get_objects())

    counts = []
    for _ in range(2):
        for _ in range(40 * UNIT):
            next(made)
        engine.waitall(PATIENCE_S)
        counts.append(held())
    # The ops since the wait before are kept, and no others.
    assert counts[1] - counts[0] < UNIT


def test_a_number_that_is_kept_is_found(mix, engine, monkeypatch):
    """The planted bug: each launch has the numbers of the round that was captured."""
    usual = kernels.BoundKernel.call_of

    def kept(self, kernel, args, accesses, frame, *, changes):
        call = usual(self, kernel, args, accesses, frame, changes=changes)
        if not changes:
            return call
        packed = call.takes(args)
        return call._replace(takes=lambda given: call.takes(given) and packed)

    monkeypatch.setattr(kernels.BoundKernel, "call_of", kept)
    loop = Loop(mix)
    made = counting(loop)
    for _ in range(LIMIT + UNIT):
        next(made)
    assert loop.x.numpy().tolist() != loop.wanted.tolist()
    LOCAL.tape.forget()
