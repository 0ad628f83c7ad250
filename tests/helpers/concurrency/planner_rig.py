"""Planning without an engine: a log, ops in it, and the results of planning.

Tests use it to drive the planner themselves, at the pace of a model checker or of a freezer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any

import cudasync as cs
from cudasync.engine.log import node as nodes
from cudasync.engine.log.combiner import Combiner
from cudasync.engine.op import Op, claim
from cudasync.engine.op_classes import FullOp

# The reads and writes of one op, by the names of the variables: "x>y" reads x and writes y.
PROGRAM = {"a": ">x", "b": "x>y", "c": "y>x", "d": "xy>", "e": ">xy"}


class Place:
    """Takes ops that are ready."""

    def __init__(self) -> None:
        self.ready: deque[Op] = deque()

    def put(self, op: Op) -> None:
        self.ready.append(op)

    def watch(self, op: Op) -> None:
        pass


class Owner:
    """The part of an engine that planning uses."""

    def __init__(self) -> None:
        self._sealed_at = 0
        self._registered: dict[Op, None] = {}
        self.refused: list[str] = []

    def _refuse(self, op: Op, number: int) -> None:
        op.number = number
        self.refused.append(op.name)
        nodes.finish(op)


class Rig:
    """A planner, some variables, and ops by name."""

    def __init__(self) -> None:
        self.planner = Combiner()
        self.place, self.owner = Place(), Owner()
        self.variables = {name: cs.Var(name) for name in "xyz"}
        self.ops: dict[str, Op] = {}
        # The names of the ops that ran, in that order.
        self.ran: deque[str] = deque()

    def make(self, name: str, accesses: str) -> Op:
        """Make an op that is not in the log yet; `accesses` has the form of PROGRAM."""
        op: Any = FullOp()
        op.name, op.number, op.priority = name, 0, 0
        op.finished, op.failure = False, None
        op._engine, op._pool = self.owner, self.place
        op._fn, op._claims, op._node = int, [], None
        reads, writes = accesses.split(">")
        op._reads = tuple(self.variables[each] for each in reads)
        op._writes = tuple(self.variables[each] for each in writes)
        op._regions = None
        self.ops[name] = op
        return op

    def log(self, program: dict[str, str]) -> None:
        """Append these ops to the log."""
        for name, accesses in program.items():
            self.planner.log.append(self.make(name, accesses))

    def run(self) -> None:
        """Run ready ops until none is left."""
        while True:
            try:
                op: Any = self.place.ready.popleft()
            except IndexError:
                return
            if claim(op, object()) is None:
                continue
            self.ran.append(op.name)
            nodes.finish(op)

    def plan_and_run(self) -> None:
        self.planner.plan()
        self.run()


def expected(program: dict[str, str]) -> dict[str, set[str]]:
    """The ops that each op must come after while no op has finished, by the definition of
    hazards."""
    names, before = list(program), {}
    for index, name in enumerate(names):
        reads, writes = program[name].split(">")
        found: set[str] = set()
        for variable in reads:
            found |= last_writer(program, names[:index], variable)
        for variable in writes:
            writer = last_writer(program, names[:index], variable)
            since = names[names.index(*writer) + 1 : index] if writer else names[:index]
            found |= writer | {each for each in since if variable in program[each].split(">")[0]}
        before[name] = found
    return before


def last_writer(program: dict[str, str], names: Iterable[str], variable: str) -> set[str]:
    writers = [each for each in names if variable in program[each].split(">")[1]]
    return set(writers[-1:])


def planned(rig: Rig) -> dict[str, set[str]]:
    """The ops that each op was planned to come after, while no op has finished."""
    found = {}
    for name, op in rig.ops.items():
        plan = nodes.gate_of(op)
        found[name] = {each.name for each in plan.before}
    return found
