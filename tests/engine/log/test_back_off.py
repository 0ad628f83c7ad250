"""The more often an entry was begun, or the more accesses it has, the longer others leave it alone.

The adversary is an entry that takes long unless another thread enters it as well. A thread in this
entry is superseded there, unless other threads leave it alone for long.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest
from helpers.concurrency.planner_rig import PROGRAM, Rig, expected, planned
from helpers.concurrency.thread_crew import (
    PATIENCE_S,
    Crew,
    comes_true,
    engine_of,
    hasty,
    held_by,
    together,
)

import cudasync as cs
from cudasync.engine.host.watchdog import stand_in
from cudasync.engine.log import back_off
from cudasync.engine.log import epoch as epochs
from cudasync.engine.log import node as nodes
from cudasync.engine.log.combiner import COMBINER, Combiner
from cudasync.engine.log.histories import history_of
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


class Heavy:
    """An op with thousands of accesses: its first planner stays in it until `go_on`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, per_access_s: float) -> None:
        monkeypatch.setattr(back_off, "PER_ACCESS_S", per_access_s)
        monkeypatch.setattr(Combiner, "enter_op", lambda *arguments: self.enter(*arguments))
        monkeypatch.setattr(back_off, "sleep", self.nap)
        self.begun, self.go_on = threading.Event(), threading.Event()
        self.napped = threading.Semaphore(0)
        self.starts: list[int] = []
        self.many = back_off.MANY + 1

    enter_op: Enter = Combiner.enter_op

    def enter(self, combiner: Combiner, op: Op, number: int, epoch: int) -> None:
        if len(op._reads) >= self.many:
            self.starts.append(threading.get_ident())
            if len(self.starts) == 1:
                self.planner_says = back_off.is_slow(epochs.latest(combiner.epoch))
                self.begun.set()
                assert self.go_on.wait(PATIENCE_S)
        Heavy.enter_op(combiner, op, number, epoch)

    def nap(self, seconds: float) -> None:
        self.napped.release()
        self.go_on.wait(seconds)

    def plan_beside(self) -> Iterator[None]:
        """Two threads plan, the second once the first is in the entry."""
        rig = Rig()
        heavy = rig.make("heavy", ">x")
        heavy._reads = tuple(cs.Var() for _ in range(self.many))
        rig.planner.log.append(heavy)
        with Crew() as crew:
            crew.start(rig.planner.plan)
            assert self.begun.wait(PATIENCE_S)
            crew.start(rig.planner.plan)
            yield
            self.go_on.set()
        assert nodes.is_planned(heavy)


NEVER_S, AT_ONCE_S = 1e6, 0.0


def test_an_entry_with_many_accesses_is_left_to_its_planner(monkeypatch):
    heavy = Heavy(monkeypatch, NEVER_S)
    for _ in heavy.plan_beside():
        for _ in range(5):
            assert heavy.napped.acquire(timeout=PATIENCE_S)
    assert len(heavy.starts) == 1
    # A finaliser's wait on that thread would wait for the thread.
    assert heavy.planner_says is False


def test_a_planner_that_is_suspended_in_such_an_entry_holds_up_nobody_for_ever(monkeypatch):
    """Also the planted bug of the test above: no time for accesses."""
    heavy = Heavy(monkeypatch, AT_ONCE_S)
    for _ in heavy.plan_beside():
        assert comes_true(lambda: len(heavy.starts) == 2)


@pytest.mark.parametrize(("per_access_s", "is_left"), [(NEVER_S, True), (AT_ONCE_S, False)])
def test_the_watchdog_replaces_no_worker_that_plans_for_long(per_access_s, is_left, monkeypatch):
    heavy = Heavy(monkeypatch, per_access_s)
    with engine_of(workers=1, pools={"io": 1}) as engine:
        engine.push(int).wait(PATIENCE_S)
        variables = [cs.Var() for _ in range(heavy.many)]
        gate = threading.Event()
        # Behind an unfinished op: so it has to be planned.
        engine.push(held_by(gate), writes=variables[:1], pool="io")
        op = engine.push(int, reads=variables)
        assert heavy.begun.wait(PATIENCE_S)
        workers = len(engine._compute.workers)
        if is_left:
            for _ in range(20):
                stand_in(engine._compute)
            assert len(heavy.starts) == 1
            assert len(engine._compute.workers) == workers
        else:
            assert comes_true(lambda: stand_in(engine._compute) or len(heavy.starts) > 1)
        heavy.go_on.set()
        gate.set()
        op.wait(PATIENCE_S)


def test_an_op_with_many_accesses_that_is_over_is_not_looked_through_again(monkeypatch):
    """Whoever supersedes the thread that ran it has nothing left to do for it."""
    monkeypatch.setattr(back_off, "PER_ACCESS_S", NEVER_S)
    seen: list[int] = []
    is_clear = Combiner.is_clear

    def counted(combiner: Combiner, op: Op, epoch: int) -> bool:
        if op.name == "heavy":
            seen.append(threading.get_ident())
        return is_clear(combiner, op, epoch)

    monkeypatch.setattr(Combiner, "is_clear", counted)
    with engine_of(workers=3) as engine, hasty():
        for _ in range(20):
            variables = [cs.Var() for _ in range(back_off.MANY + 1)]
            now = epochs.latest(COMBINER.epoch).histories_of
            for each in variables:
                history_of(each, now)
            seen.clear()
            op = engine.push(int, reads=variables, name="heavy")
            together(op.wait, op.wait, op.wait)
            engine.waitall(PATIENCE_S)
            assert len(seen) <= 3
