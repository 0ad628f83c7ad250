"""Cellar, jit. Finds grid-stride loops, in which the warps of a block keep step.

Warps run one after another. If a loop's index advances by a whole grid, each warp would touch a few
bytes every so many pages. The next warp would touch the bytes behind. That defeats caches and
prefetchers. So a warp may suspend before each trip of such a loop (`parallel_regions`). All warps
of the block make one trip, or a few, on adjacent memory before any makes the next. The program
cannot tell: it does not order these warps.
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
    from cudasync.softgpu.jit.analysis.divergence import Divergence
    from cudasync.softgpu.jit.analysis.reconvergence_order import Flow, Loop

_FAR = (StateSpace.GLOBAL, StateSpace.GENERIC)
_MOVES = ("ld", "st", "atom", "red")
# The bytes that a thread should move in a turn: with a quarter of it a sum over the grid took 1.27
# times as long.
_LEAST_BYTES = 16


@dataclass(frozen=True, slots=True)
class Pace:
    """A place before node `header` where a warp may suspend with `code`.

    Lanes may wait at `header` and at `others`. A warp makes `trips` trips in a turn.
    """

    code: int
    header: int
    others: tuple[int, ...]
    live: frozenset[str]
    trips: int


def find_paces(flow: Flow, divergence: Divergence, barriers: set[int], first: int) -> list[Pace]:
    """All grid-stride loops without a barrier inside, with codes from `first` on.

    The list is empty if the function has a loop with an entry beside its header.
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
            live = flow.live_in(header).union(*(flow.live_in(each) for each in others))
            trips = max(1, _LEAST_BYTES // _moved_bytes(flow, inside))
            code = first + len(found)
            found.append(Pace(code, header, tuple(sorted(others)), live, trips))
    return found


def _moved_bytes(flow: Flow, inside: list[int]) -> int:
    """The bytes of global memory that a trip moves for a thread."""
    body = [flow.function.body[position] for position in inside]
    return sum(each.type.size * each.vector_size for each in body if _is_far(each))


def _is_far(instruction: Instruction) -> bool:
    return instruction.opcode in _MOVES and instruction.space in _FAR


def _strides(flow: Flow, loop: Loop, inside: list[int], strides: frozenset[str]) -> bool:
    """Whether the loop advances a loop-carried register by a part of the grid's size."""
    body = [flow.function.body[position] for position in inside]
    if not any(map(_is_far, body)):
        return False
    own = {register.name for each in body for register in defs(each)}
    carried = own & flow.live_in(loop.header)
    fixed = strides - own
    # The sum may pass through other registers before it reaches the carried register.
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
    """The registers that depend on the number of blocks."""
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
