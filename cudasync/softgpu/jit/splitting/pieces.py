"""Cellar, jit. Chooses where to split a large function: pieces are nodes in execution order.

A loop stays in one piece if it fits, because its loop-carried values are then in registers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cudasync.softgpu.jit.splitting.weights import total, weight
from cudasync.softgpu.jit.transforms.passed_values import kept_together

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cudasync.ptx.ir import Function
    from cudasync.softgpu.jit.analysis.reconvergence_order import Flow, Loop

# A function heavier than this many pieces is split.
_LEAST_PIECES = 3
# Pieces that may run more than once are optimised like whole functions up to this total weight,
# in the order of the text. Optimising the rest would take too long.
_MOST_CAREFUL = 24_000


@dataclass(frozen=True, slots=True)
class Piece:
    """The nodes `first` to `last`; `has_loops` says whether a loop lies within them.

    A piece with `is_light` is compiled quickly to slower code: it runs once for a warp, or the
    pieces that may run again are too large together.
    """

    first: int
    last: int
    has_loops: bool
    is_light: bool

    def __contains__(self, node: int) -> bool:
        return self.first <= node <= self.last

    def holds(self, loop: Loop) -> bool:
        """Whether the piece contains all of a loop."""
        return loop.header in self and loop.last in self


def is_large(function: Function, piece_weight: int) -> bool:
    """Whether a function is to be split into pieces of about this weight."""
    return total(function.body) > _LEAST_PIECES * piece_weight


def is_small(flow: Flow, nodes: Iterable[int], piece_weight: int) -> bool:
    """Whether these nodes together are no heavier than a function that is not split."""
    body = flow.function.body
    spans = [body[flow.nodes[each].start : flow.nodes[each].end] for each in nodes]
    return sum(map(total, spans)) <= _LEAST_PIECES * piece_weight


def split_points(function: Function, piece_weight: int) -> frozenset[int]:
    """Positions at which a node must begin so that no node is much heavier than a piece.

    A call stays with the stores of its arguments and the loads of its results.
    """
    found: set[int] = set()
    together = kept_together(function)
    heavy = 0
    for position, instruction in enumerate(function.body):
        own = weight(instruction)
        if heavy and heavy + own > piece_weight // 2 and position not in together:
            found.add(position)
            heavy = 0
        heavy += own
    return frozenset(found)


def find_pieces(flow: Flow, piece_weight: int) -> tuple[Piece, ...]:
    """The pieces of a function, each at most this heavy if its nodes allow that."""
    body = flow.function.body
    weights = [total(body[node.start : node.end]) for node in flow.nodes]
    # Outer loops come first, so of loops with the same header the outermost that fits is kept.
    whole: dict[int, int] = {}
    for loop in flow.loops:
        heavy = sum(weights[loop.header : loop.last + 1])
        if heavy <= piece_weight:
            whole.setdefault(loop.header, heavy)
    starts: list[int] = []
    heavy = piece_weight
    for index, own in enumerate(weights):
        if heavy + max(own, whole.get(index, 0)) > piece_weight:
            starts.append(index)
            heavy = 0
        heavy += own
    ends = [*(start - 1 for start in starts[1:]), len(weights) - 1]
    left = _MOST_CAREFUL
    found = []
    for first, last in zip(starts, ends, strict=True):
        has_loops = any(first <= each.header and each.last <= last for each in flow.loops)
        again = has_loops or any(each.header <= last and first <= each.last for each in flow.loops)
        if again:
            left -= sum(weights[first : last + 1])
        found.append(Piece(first, last, has_loops, is_light=not again or left < 0))
    return tuple(found)
