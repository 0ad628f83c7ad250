"""The more often an entry was begun, the longer other threads wait before they take over.

The adversary is an entry that takes long unless another thread enters it as well. A thread in this
entry is superseded there, unless other threads leave it alone for long.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from helpers.concurrency.planner_rig import PROGRAM, Rig, expected, planned
from helpers.concurrency.thread_crew import PATIENCE_S, Crew, engine_of, held_by, together

import cudasync as cs
from cudasync.engine.log import back_off
from cudasync.engine.log.combiner import Combiner
from cudasync.engine.op import Op

# Entering the slow op takes at least this long.
SLOW_S = 0.03
# Each start gets four times the time of the last, so the last of these would have minutes.
MOST_STARTS = 14
# An entry that is begun again and again ends after so many starts.
ENOUGH = 60

Enter = Callable[[Combiner, Op, int, int], None]


class Slow:
    """Slows the entering of ops named "slow", and counts the starts."""

    def __init__(self) -> None:
        self.seconds = SLOW_S
        # Each event is set by the next start.
        self.starts: list[threading.Event] = []
        self.enter_op: Enter = Combiner.enter_op

    def enter(self, combiner: Combiner, op: Op, number: int, epoch: int) -> None:
        if op.name == "slow":
            start = threading.Event()
            self.starts.append(start)
            for earlier in self.starts[: self.starts.index(start)]:
                earlier.set()
            if len(self.starts) < ENOUGH:
                start.wait(self.seconds)
        self.enter_op(combiner, op, number, epoch)


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Slow:
    slow = Slow()
    monkeypatch.setattr(
        Combiner, "enter_op", lambda self, op, number, epoch: slow.enter(self, op, number, epoch)
    )
    return slow


def starts_of_three_who_plan(slow: Slow) -> int:
    rig = Rig()
    program = {"first": ">x", "slow": "x>y", "last": "y>"}
    rig.log(program)
    together(*[rig.planner.plan] * 3)
    assert planned(rig) == expected(program)
    return len(slow.starts)


def starts_of_three_who_push(slow: Slow) -> int:
    gate, begun = threading.Event(), threading.Event()
    device, x, y = cs.Device(0), cs.Var("x"), cs.Var("y")
    with engine_of(workers=1) as engine:
        engine.push(lambda stream: None, device=device).wait(PATIENCE_S)
        # The worker is blocked, so each pusher enters the slow op.
        engine.push(held_by(gate, begun))
        assert begun.wait(PATIENCE_S)
        engine.push(int, writes=[x], name="slow")

        # Ops that name no variable would pass the slow op.
        def push() -> None:
            for _ in range(3):
                engine.push(lambda stream: None, reads=[y], device=device).wait(PATIENCE_S)

        together(push, push, push)
        gate.set()
    return len(slow.starts)


PROGRAMS = [starts_of_three_who_plan, starts_of_three_who_push]


@pytest.mark.parametrize("starts", PROGRAMS)
def test_an_entry_that_takes_long_is_begun_a_few_times(slow, starts):
    assert starts(slow) <= MOST_STARTS


@pytest.mark.parametrize("starts", PROGRAMS)
def test_taking_over_without_a_back_off_is_found(slow, starts, monkeypatch):
    monkeypatch.setattr(back_off, "give_way", lambda epoch: None)
    # The slow op waits for other threads, however late they come.
    slow.seconds = PATIENCE_S
    assert starts(slow) > MOST_STARTS


def test_threads_that_are_suspended_in_one_entry_hold_up_nobody(monkeypatch):
    """Each thread in turn has superseded the one before."""
    rig, gate = Rig(), threading.Event()
    rig.log(PROGRAM)
    inside = threading.Semaphore(0)
    enter_op = Combiner.enter_op
    suspended: set[int] = set()

    def enter(self: Combiner, op: Op, number: int, epoch: int) -> None:
        if op.name == "c" and threading.get_ident() in suspended:
            inside.release()
            assert gate.wait(PATIENCE_S)
        enter_op(self, op, number, epoch)

    monkeypatch.setattr(Combiner, "enter_op", enter)

    def plan() -> None:
        suspended.add(threading.get_ident())
        rig.planner.plan()

    with Crew() as crew:
        for _ in range(4):
            crew.start(plan)
            assert inside.acquire(timeout=PATIENCE_S)
        rig.planner.plan()
        assert planned(rig) == expected(PROGRAM)
        gate.set()


def test_who_is_interrupted_in_an_entry_does_not_give_way_to_itself(monkeypatch):
    """A thread that interrupts its own entry, by a finaliser's push or by Ctrl-C, must not wait.

    The thread would wait for itself.
    """
    rig = Rig()
    rig.log(PROGRAM)
    enter_op = Combiner.enter_op
    depth = 12

    def enter(self: Combiner, op: Op, number: int, epoch: int) -> None:
        nonlocal depth
        if op.name == "c" and depth:
            depth -= 1
            rig.planner.plan()
        enter_op(self, op, number, epoch)

    monkeypatch.setattr(Combiner, "enter_op", enter)
    monkeypatch.setattr(back_off, "sleep", lambda seconds: pytest.fail("it slept"))
    rig.planner.plan()
    assert planned(rig) == expected(PROGRAM)
    rig.plan_and_run()
    assert "".join(rig.ran) == "".join(PROGRAM)
