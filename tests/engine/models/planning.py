"""Pushing, planning, finishing, waiting and closing, by two or three threads at once.

There are no worker threads, because the explorer cannot control them. Its own threads do their
work.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from helpers.concurrency.model_checking import Model
from helpers.concurrency.planner_rig import Rig, expected, planned

from cudasync.atomic import DONE, Bell
from cudasync.engine.log import node as nodes
from cudasync.engine.log.entries import Close
from cudasync.engine.op import Op, claim

Workers = Sequence[Callable[[], object]]


class _Planning(Model):
    most = 20
    drawn = 8
    # The ops in the log at the beginning.
    program: ClassVar[dict[str, str]] = {}

    def __init__(self) -> None:
        self.rig = Rig()
        self.rig.log(self.program)

    def in_order(self) -> bool:
        """Finish the remaining ops, and check that all ops ran in the order of the log."""
        self.rig.plan_and_run()
        by_number = sorted(self.rig.ops.values(), key=lambda op: op.number)
        assert [op.number for op in by_number] == list(range(1, len(by_number) + 1))
        return [op.name for op in by_number] == list(self.rig.ran)


class PushAndPushCrossed(_Planning):
    """Two threads push an op each, on crossed variables, and plan."""

    def workers(self) -> Workers:
        return [lambda: self.push("p", "x>y"), lambda: self.push("q", "y>x")]

    def push(self, name: str, accesses: str) -> None:
        op = self.rig.make(name, accesses)
        self.rig.planner.log.append(op)
        self.rig.planner.plan(op)

    def holds(self) -> bool:
        first = "p" if self.rig.ops["p"].number == 1 else "q"
        second = "q" if first == "p" else "p"
        assert planned(self.rig) == {first: set(), second: {first}}
        return self.in_order()


class TwoPlanners(_Planning):
    """Two threads plan the same log."""

    program: ClassVar[dict[str, str]] = {"a": ">x", "b": "x>y", "c": "y>x"}

    def workers(self) -> Workers:
        return [self.rig.planner.plan, self.rig.planner.plan]

    def holds(self) -> bool:
        self.rig.planner.plan()
        assert planned(self.rig) == expected(self.program)
        return self.in_order()


class PushAndComplete(_Planning):
    """One thread finishes an op while another plans an op behind it."""

    program: ClassVar[dict[str, str]] = {"a": ">x"}

    def __init__(self) -> None:
        super().__init__()
        self.rig.planner.plan()

    def workers(self) -> Workers:
        return [self.rig.run, self.push]

    def push(self) -> None:
        op = self.rig.make("b", "x>")
        self.rig.planner.log.append(op)
        self.rig.planner.plan(op)

    def holds(self) -> bool:
        return self.in_order()


class RunAtOnceAndPlan(_Planning):
    """One thread runs an op without a record, as a planning worker does.

    Meanwhile another thread takes over and plans the op behind it.
    """

    program: ClassVar[dict[str, str]] = {"a": ">x", "b": "x>"}

    def workers(self) -> Workers:
        return [self.run_at_once, self.rig.planner.plan]

    def run_at_once(self) -> None:
        mine = self.rig.planner.take()
        if mine.done != 0:
            return
        mine.started = 0
        if mine.is_over:
            return
        op = self.rig.ops["a"]
        if claim(op, object()) is None:
            return
        op.number = 1
        self.rig.ran.append("a")
        self.end(op)
        if not mine.is_over:
            mine.segment.entries[0] = DONE
        mine.done = 1

    def end(self, op: Op) -> None:
        op.finished = True
        if op._node is not None:
            nodes.finish(op)

    def holds(self) -> bool:
        return self.in_order()


class RunAtOnceThatLooksFirst(RunAtOnceAndPlan):
    planted = "look for a record, then say that it has finished: one is made in between"
    most = 100

    def end(self, op: Op) -> None:
        is_known = op._node is not None
        op.finished = True
        if is_known:
            nodes.finish(op)


class CompleteAndCompleteBeforeOne(PushAndComplete):
    """Two threads finish an op each, and a third op is behind both."""

    program: ClassVar[dict[str, str]] = {"a": ">x", "b": ">y", "c": "xy>"}

    def workers(self) -> Workers:
        return [lambda: self.finish("a"), lambda: self.finish("b")]

    def finish(self, name: str) -> None:
        self.rig.ran.append(name)
        assert claim(self.rig.ops[name], object()) is not None
        nodes.finish(self.rig.ops[name])

    def holds(self) -> bool:
        assert "c" in [op.name for op in self.rig.place.ready], "c is ready once both have ended"
        self.rig.run()
        return list(self.rig.ran) in (["a", "b", "c"], ["b", "a", "c"])


class CompleteAndWait(PushAndComplete):
    """One thread finishes an op while another falls asleep for it, and never looks again."""

    # This model has fewer interleavings.
    most = 30

    def workers(self) -> Workers:
        return [self.rig.run, self.wait]

    def wait(self) -> None:
        op = self.rig.ops["a"]
        record = nodes.of(op)
        bell = Bell()
        record.sleepers.append(bell)
        if not op.finished:
            lie_down = bell.sleep
            lie_down()
            assert op.finished

    def holds(self) -> bool:
        return self.rig.ops["a"].done()


class WaitThatLooksFirst(CompleteAndWait):
    planted = "look, then lie down: the end comes in between, and nobody rings"

    def wait(self) -> None:
        op = self.rig.ops["a"]
        record = nodes.of(op)
        if op.finished:
            return
        bell = Bell()
        record.sleepers.append(bell)
        lie_down = bell.sleep
        lie_down()


class CloseAndPush(_Planning):
    """One thread closes while another pushes: the op's place in the log decides if it runs."""

    def workers(self) -> Workers:
        return [self.close, self.push]

    def close(self) -> None:
        self.rig.planner.log.append(Close(self.rig.owner))  # type: ignore[arg-type]
        self.rig.planner.plan()

    def push(self) -> None:
        op = self.rig.make("late", ">x")
        self.rig.planner.log.append(op)
        self.rig.planner.plan(op)

    def holds(self) -> bool:
        self.rig.plan_and_run()
        op = self.rig.ops["late"]
        ran, refused = list(self.rig.ran), self.rig.owner.refused
        return op.finished and (ran == ["late"]) == (op.number == 1) and ran != refused[:1]
