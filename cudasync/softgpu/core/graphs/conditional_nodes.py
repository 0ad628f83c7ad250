"""Cellar. Conditional nodes: bodies that run if, while or in the case that a word selects.

A condition is a word of device memory, and its handle is the word's address: kernels write the
word. The node becomes two commands, a decision and a join. The decision reads the word when it
executes, and enqueues the selected body; the join also waits for the body. A while body is
followed by another decision.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, replace
from enum import IntEnum, unique
from typing import TYPE_CHECKING, ClassVar, Final

from cudasync.softgpu.core.driver_types.result_codes import (
    ILLEGAL_ADDRESS,
    INVALID_VALUE,
    LAUNCH_TIMEOUT,
    NOT_SUPPORTED,
    DriverFailure,
)
from cudasync.softgpu.core.graphs.node_parameters import NodeType, Work
from cudasync.softgpu.core.streams.commands import Command, Step, Touched

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cudasync.softgpu.core.context import Context
    from cudasync.softgpu.core.graphs.graph import Graph
    from cudasync.softgpu.core.memory.allocation_table import Allocation
    from cudasync.softgpu.core.streams.streams import Stream

_word = ctypes.c_uint32.from_address
# A loop with more rounds than this counts as endless.
_MOST_ROUNDS: Final = 1 << 20

IN_BODIES: Final = frozenset(
    {
        NodeType.KERNEL,
        NodeType.EMPTY,
        NodeType.GRAPH,
        NodeType.MEMSET,
        NodeType.MEMCPY,
        NodeType.CONDITIONAL,
    }
)
"""The node types that CUDA allows in the body of a conditional node."""


@unique
class ConditionalType(IntEnum):
    """CUgraphConditionalNodeType."""

    IF = 0
    WHILE = 1
    SWITCH = 2


class Condition:
    """A word that kernels write and one node reads."""

    def __init__(
        self,
        memory: Allocation,
        initial: int,
        end: Callable[[Condition], None],
        *,
        is_assigned: bool,
    ) -> None:
        self.memory = memory
        # One item for each graph or executable that may still use it; the word goes with the last
        # one. A list, because append and pop are one C call, and holders end on any thread.
        self._holders: list[None] = [None]
        self._end = end
        self.initial = initial
        self.is_assigned = is_assigned
        """True if every launch sets the word to `initial`."""
        self.is_used = False
        self.write(initial)

    @property
    def handle(self) -> int:
        return self.memory.start

    def hold(self) -> None:
        """Add a graph or executable as a holder."""
        self._holders.append(None)

    def release(self) -> None:
        """Remove a holder."""
        self._holders.pop()
        # Several threads may see an empty list, but the word goes only once.
        if not self._holders:
            self._end(self)

    def read(self) -> int:
        """The word's value; DriverFailure if its context is gone."""
        self._check()
        return _word(self.memory.start).value

    def write(self, value: int) -> None:
        """Set the word from the host."""
        self._check()
        _word(self.memory.start).value = value

    def _check(self) -> None:
        if not self.memory.is_live:
            raise DriverFailure(ILLEGAL_ADDRESS, f"not live: {self.memory.describe()}")


@dataclass(frozen=True, slots=True)
class ConditionalWork(Work):
    """The work of a conditional node, with its bodies."""

    kind: ClassVar[NodeType] = NodeType.CONDITIONAL

    condition: Condition
    type: ConditionalType
    bodies: tuple[Graph, ...]
    where: Context

    @property
    def context(self) -> Context:
        return self.where

    @property
    def graphs(self) -> tuple[Graph, ...]:
        return self.bodies

    def copied(self, copy: Callable[[Graph], Graph]) -> Work:
        return replace(self, bodies=tuple(copy(body) for body in self.bodies))

    def with_condition_of(self, other: ConditionalWork) -> ConditionalWork:
        """A copy with its own bodies and another work's condition."""
        return replace(self, condition=other.condition)

    def may_replace(self, old: Work) -> bool:
        return (
            isinstance(old, ConditionalWork)
            and (old.type, len(old.bodies)) == (self.type, len(self.bodies))
            and old.where is self.where
        )

    def chosen(self, value: int) -> Graph | None:
        """The body to run for a value of the word, if any."""
        match self.type:
            case ConditionalType.WHILE:
                return self.bodies[0] if value else None
            case ConditionalType.IF:
                index = 0 if value else 1
            case ConditionalType.SWITCH:
                index = value
        return self.bodies[index] if index < len(self.bodies) else None

    def describe(self) -> str:
        return f"a conditional node ({self.type.name.lower()})"


class Assignment(Command):
    """Sets conditions to their defaults, at the start of a launch."""

    __slots__ = ("conditions",)

    def __init__(self, stream: Stream, conditions: Sequence[Condition]) -> None:
        super().__init__(stream)
        self.conditions = conditions

    def run(self) -> Step:
        for condition in self.conditions:
            condition.write(condition.initial)
        return Step.DONE

    def touched(self) -> Touched:
        return Touched((), [(c.memory.start, c.memory.end) for c in self.conditions])

    def describe(self) -> str:
        return "the start of a graph launch"


class Decision(Command):
    """Reads the condition and enqueues the selected body."""

    __slots__ = ("follow", "round", "work")

    def __init__(
        self,
        stream: Stream,
        work: ConditionalWork,
        follow: Callable[[Decision, Graph], None],
        round_number: int = 0,
    ) -> None:
        super().__init__(stream)
        self.work = work
        self.follow = follow
        self.round = round_number

    def run(self) -> Step:
        chosen = self.work.chosen(self.work.condition.read())
        if chosen is not None:
            if self.round >= _MOST_ROUNDS:
                raise DriverFailure(
                    LAUNCH_TIMEOUT,
                    f"{self.describe()} has run its body {self.round} times: the loop does not end",
                )
            self.follow(self, chosen)
        return Step.DONE

    def touched(self) -> Touched:
        memory = self.work.condition.memory
        return Touched([(memory.start, memory.end)])

    def describe(self) -> str:
        return self.work.describe()


def check_size(kind: int, size: int) -> None:
    """INVALID_VALUE for an invalid number of bodies of a conditional node."""
    allowed = {0: size in (1, 2), 1: size == 1, 2: 0 < size <= _MOST_BODIES}
    if not allowed.get(kind, False):
        raise DriverFailure(
            INVALID_VALUE, f"a conditional node of type {kind} cannot have {size} bodies"
        )


_MOST_BODIES: Final = 1 << 16


def conditions_of(graph: Graph) -> list[Condition]:
    """The conditions of all conditional nodes, also in nested graphs."""
    works = [node.work for node in graph.everything()]
    return [work.condition for work in works if isinstance(work, ConditionalWork)]


def check_bodies(graph: Graph) -> None:
    """NOT_SUPPORTED for a node that is not allowed in its body."""
    for node in graph.everything():
        if isinstance(node.work, ConditionalWork):
            for body in node.work.bodies:
                for inside in body.everything():
                    if inside.work.kind not in IN_BODIES:
                        raise DriverFailure(
                            NOT_SUPPORTED,
                            f"a conditional node cannot contain {inside.work.describe()}",
                        )
