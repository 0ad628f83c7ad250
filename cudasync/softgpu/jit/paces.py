"""Cellar, jit. Loops in which the warps of a block keep step: those that stride over a grid.

Warps run one after another. In a loop whose index goes on by a whole grid each of them would touch
a few bytes every so many pages, and the next warp the bytes behind: no cache and no prefetcher
likes that. So such a loop is a place where a warp may stop (`segments`) before each trip, and all
warps of the block make one trip, on memory that lies together, before any makes the next.
Stopping there means nothing: it is only another order of warps that nothing has put in order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cudasync.ptx.ir import Special
from cudasync.ptx.liveness import defs, uses
from cudasync.ptx.types import StateSpace

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cudasync.ptx.ir import Instruction
    from cudasync.softgpu.jit.divergence import Divergence
    from cudasync.softgpu.jit.flow import Flow, Loop

_FAR = (StateSpace.GLOBAL, StateSpace.GENERIC)
_MOVES = ("ld", "st", "atom", "red")


@dataclass(frozen=True, slots=True)
class Pace:
    """Before node `header` a warp may stop, with `code`; lanes may wait at it and at `others`."""

    code: int
    header: int
    others: tuple[int, ...]
    live: frozenset[str]


def find_paces(flow: Flow, divergence: Divergence, barriers: set[int], first: int) -> list[Pace]:
    """Every loop of that sort without a barrier inside, with codes from `first` on.

    A loop that is entered beside its header is let alone.
    """
    if not flow.is_reducible:
        return []
    strides = _derived_from_grid(flow.function.body)
    found: list[Pace] = []
    for loop in flow.loops:
        inside = [
            position
            for node in flow.nodes
            if node.index in loop
            for position in range(node.start, node.end)
        ]
        if barriers.isdisjoint(inside) and _strides(flow, loop, inside, strides):
            header = loop.header
            others = divergence.pending.get(header, frozenset()) - {header, flow.exit}
            live = flow.live_in[header].union(*(flow.live_in[each] for each in others))
            found.append(Pace(first + len(found), header, tuple(sorted(others)), live))
    return found


def _strides(flow: Flow, loop: Loop, inside: list[int], strides: frozenset[str]) -> bool:
    """Whether a register that goes round is moved on by a part of the grid's size."""
    body = [flow.function.body[position] for position in inside]
    if not any(each.opcode in _MOVES and each.space in _FAR for each in body):
        return False
    own = {register.name for each in body for register in defs(each)}
    carried = own & flow.live_in[loop.header]
    fixed = strides - own
    # What is added up before it is carried on is reached through other registers.
    moved: set[str] = set()
    size = -1
    while size != len(moved):
        size = len(moved)
        for each in body:
            if each.opcode in _SUMS and any(r.name in fixed or r.name in moved for r in uses(each)):
                moved.update(register.name for register in defs(each))
    return not moved.isdisjoint(carried)


_SUMS = ("add", "sub", "mad", "mov", "selp")


def _derived_from_grid(body: Iterable[Instruction]) -> frozenset[str]:
    """The registers that depend on how many blocks there are."""
    instructions = list(body)
    found: set[str] = set()
    size = -1
    while size != len(found):
        size = len(found)
        for each in instructions:
            if any(register.name in found for register in uses(each)) or any(
                isinstance(operand, Special) and operand.name.startswith("%nctaid")
                for operand in each.operands
            ):
                found.update(register.name for register in defs(each))
    return frozenset(found)
