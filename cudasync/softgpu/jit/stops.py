"""Cellar, jit. The places where a warp stops and goes on later.

A stop is a barrier, or the back edge of a loop that waits for memory to change. A loop waits if
a guard inside it depends on what a volatile, relaxed or acquiring load or an atomic inside it
returned, or if it sleeps: other loops with atomics end by themselves.

At a gathered stop all lanes of the warp are together; its state is saved, and it returns. At any
other the lanes that arrive are held, the rest go on, and the warp returns when no lane can.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cudasync.ptx.ir import Integer
from cudasync.ptx.liveness import defs, uses

if TYPE_CHECKING:
    from cudasync.ptx.ir import Function, Instruction
    from cudasync.softgpu.jit.flow import Flow, Loop

_SEEING = frozenset({"volatile", "relaxed", "acquire", "mmio"})
_BARRIERS = frozenset({"bar", "barrier"})


@dataclass(frozen=True, slots=True)
class Stop:
    """`code` is what the warp function returns and is resumed with; `continuation` is a node.

    `position` is the barrier's in the body, or that of a branch back; for a loop, `loop` is set.
    """

    code: int
    continuation: int
    position: int
    loop: Loop | None

    @property
    def is_barrier(self) -> bool:
        return self.loop is None


def is_barrier(instruction: Instruction) -> bool:
    """Whether this waits for the threads of the block; those of a warp never have to."""
    return instruction.opcode in _BARRIERS and not {"warp", "arrive"} & set(instruction.modifiers)


def has_named_barriers(kernel: Function) -> bool:
    """Whether the kernel has more than one barrier, at which all threads meet."""
    barriers = [
        each for each in kernel.body if each.opcode in _BARRIERS and "warp" not in each.modifiers
    ]
    return any(
        "sync" not in each.modifiers
        or len(each.operands) != 1
        or not isinstance(each.operands[0], Integer)
        or each.operands != barriers[0].operands
        for each in barriers
    )


def find_stops(flow: Flow) -> tuple[Stop, ...]:
    """Every stop, in the order of the nodes; codes count from 1."""
    found: list[Stop] = []
    for node in flow.nodes:
        (continuation, *more) = node.successors or (flow.exit,)
        # A plain barrier with nothing behind it holds nobody up.
        matters = continuation != flow.exit or has_named_barriers(flow.function)
        if is_barrier(flow.last(node.index)) and matters:
            assert not more, node
            found.append(Stop(len(found) + 1, continuation, node.end - 1, None))
    for loop in flow.loops:
        if _waits(flow, loop):
            position = branch_back(flow, loop)
            found.append(Stop(len(found) + 1, loop.header, position, loop))
    return tuple(found)


def held_nodes(flow: Flow, stops: tuple[Stop, ...]) -> frozenset[int]:
    """The nodes in which lanes may be held."""
    held: set[int] = set()
    for stop in stops:
        if stop.loop is not None:
            held.update(range(stop.loop.header, stop.loop.last + 1))
    barriers = {stop.position for stop in stops if stop.is_barrier}
    held.update(node.index for node in flow.nodes if node.end - 1 in barriers)
    return frozenset(held)


def branch_back(flow: Flow, loop: Loop) -> int:
    """The position of the last branch to the loop's header."""
    latches = [node for node in flow.nodes if node.index in loop and loop.header in node.successors]
    return latches[-1].end - 1


def _waits(flow: Flow, loop: Loop) -> bool:
    body = flow.function.body
    inside = [
        body[position]
        for node in flow.nodes
        if node.index in loop
        for position in range(node.start, node.end)
    ]
    if any(each.opcode == "nanosleep" for each in inside):
        return True
    seen = {register.name for each in inside if _sees(each) for register in defs(each)}
    size = 0
    while size != len(seen):
        size = len(seen)
        for each in inside:
            if any(register.name in seen for register in uses(each)):
                seen.update(register.name for register in defs(each))
    return any(each.guard is not None and each.guard.register.name in seen for each in inside)


def _sees(instruction: Instruction) -> bool:
    """Whether this reads what other threads may write meanwhile."""
    if instruction.opcode == "ld":
        return not _SEEING.isdisjoint(instruction.modifiers)
    return instruction.opcode == "atom"
