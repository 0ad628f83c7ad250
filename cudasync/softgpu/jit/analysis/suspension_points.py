"""Cellar, jit. Finds suspension points: the places where a warp is suspended and resumed.

A suspension point is a barrier, or the back edge of a loop that waits for memory to change. A loop
waits if it sleeps, or if a guard inside it depends on a value that it saw in memory which other
threads may write (`memory_visibility.sees`). Other loops with atomics end by themselves. If a
waiting loop may hold some lanes of a warp, warp-wide instructions are suspension points, too
(meetings): the lanes that arrive first are held until the others have left the loop.

At a gathered suspension point all lanes of the warp are together: its state is saved, and it
returns. At any other, arriving lanes are held and the rest go on; the warp returns when none can.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from cudasync.ptx.liveness import defs, uses
from cudasync.ptx.types import StateSpace
from cudasync.softgpu.jit.transforms.suspending_functions import (
    NOBODY_WAITS,
    Waiting,
    has_named_barriers,
    is_barrier,
    is_meeting,
)
from cudasync.softgpu.semantics.memory_visibility import callee, gets_on, is_fence, sees

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cudasync.ptx.ir import Instruction
    from cudasync.softgpu.jit.analysis.reconvergence_order import Flow, Loop, Node


@dataclass(frozen=True, slots=True)
class Stop:
    """`code` is the warp function's return value and resume argument; `continuation` is a node.

    `position` is that of the instruction in the body, or of a branch back; for a loop, `loop` is
    set. `is_idle` says of a loop that it does nothing but wait.
    """

    code: int
    continuation: int
    position: int
    loop: Loop | None = None
    is_idle: bool = False
    is_meeting: bool = False

    @property
    def is_barrier(self) -> bool:
        return self.loop is None and not self.is_meeting


def find_stops(
    flow: Flow, waiting: Waiting = NOBODY_WAITS, *, all_matter: bool = False
) -> tuple[Stop, ...]:
    """Every barrier and every loop that waits; codes count from 1.

    With `all_matter` a barrier with nothing behind it counts, too. The analysis does not follow
    values that `waiting` functions see: a loop that calls one waits.
    """
    found: list[Stop] = []
    for node in flow.nodes:
        (continuation, *more) = node.successors or (flow.exit,)
        # A plain barrier with nothing behind it holds no thread up.
        matters = all_matter or continuation != flow.exit or has_named_barriers(flow.function)
        if is_barrier(flow.last(node.index)) and matters:
            assert not more, node
            found.append(Stop(len(found) + 1, continuation, node.end - 1))
    for loop in flow.loops:
        if _waits(flow, loop, waiting):
            position = branch_back(flow, loop)
            inside = _inside(flow, loop)
            is_idle = not any(gets_on(i) and waiting.get(callee(i) or "", True) for i in inside)
            found.append(Stop(len(found) + 1, loop.header, position, loop, is_idle))
    return tuple(found)


def with_meetings(
    flow: Flow, stops: tuple[Stop, ...], held: frozenset[int], waiting: Waiting
) -> tuple[Stop, ...]:
    """The suspension points and, if loops with a code in `held` may hold lanes, the meetings."""
    if not any(stop.loop is not None and stop.code in held for stop in stops):
        return stops
    meets = is_meeting(flow.function, waiting)
    found = list(stops)
    for node in flow.nodes:
        if meets(flow.function.body[node.start]):
            found.append(Stop(len(found) + 1, node.index, node.start, is_meeting=True))
    return tuple(found)


def renumbered(stops: Iterable[Stop]) -> tuple[Stop, ...]:
    """The same suspension points with codes from 1 on."""
    return tuple(replace(stop, code=index) for index, stop in enumerate(stops, start=1))


def parts_lanes(flow: Flow, stop: Stop, divergent: frozenset[int]) -> bool:
    """Whether lanes may reach `stop` one by one; at `divergent` nodes not all are together."""
    if stop.loop is not None:
        loop = stop.loop
        return loop.header in divergent or any(
            latch.index in divergent for latch in _latches(flow, loop)
        )
    if stop.is_meeting:
        return stop.continuation in divergent
    nodes = (flow.nodes[index] for index in divergent if index != flow.exit)
    return any(node.end - 1 == stop.position for node in nodes)


def held_nodes(flow: Flow, stops: tuple[Stop, ...], held_loops: frozenset[int]) -> frozenset[int]:
    """The nodes in which lanes may be held, given the codes of loops that hold lanes."""
    held: set[int] = set()
    for stop in stops:
        if stop.loop is not None and stop.code in held_loops:
            held.update(range(stop.loop.header, stop.loop.last + 1))
        elif stop.is_meeting:
            held.add(stop.continuation)
    barriers = {stop.position for stop in stops if stop.is_barrier}
    held.update(node.index for node in flow.nodes if node.end - 1 in barriers)
    return frozenset(held)


def branch_back(flow: Flow, loop: Loop) -> int:
    """The position of the last branch to the loop's header."""
    return _latches(flow, loop)[-1].end - 1


def _latches(flow: Flow, loop: Loop) -> list[Node]:
    """The nodes that branch back to the loop's header."""
    return [node for node in flow.nodes if node.index in loop and loop.header in node.successors]


def _inside(flow: Flow, loop: Loop) -> list[Instruction]:
    body = flow.function.body
    return [
        body[position]
        for node in flow.nodes
        if node.index in loop
        for position in range(node.start, node.end)
    ]


def _waits(flow: Flow, loop: Loop, waiting: Waiting) -> bool:
    inside = _inside(flow, loop)
    if any(each.opcode == "nanosleep" or callee(each) in waiting for each in inside):
        return True
    has_fence = any(is_fence(each) for each in inside)
    looks = [each for each in inside if sees(each, behind_fence=has_fence)]
    seen = {register.name for each in looks for register in defs(each)}
    # Unoptimised code keeps values that it has seen in local memory.
    is_kept = False
    size = -1
    while size != len(seen):
        size = len(seen)
        for each in inside:
            is_own = each.space in _OWN_SPACES
            if any(register.name in seen for register in uses(each)):
                seen.update(register.name for register in defs(each))
                is_kept = is_kept or (each.opcode == "st" and is_own)
            elif is_kept and each.opcode == "ld" and is_own:
                seen.update(register.name for register in defs(each))
    return any(each.guard is not None and each.guard.register.name in seen for each in inside)


_OWN_SPACES = (StateSpace.LOCAL, StateSpace.PARAM, StateSpace.GENERIC)
