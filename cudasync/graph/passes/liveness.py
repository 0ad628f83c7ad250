"""Floor 3, passes. Liveness: the memory whose value may be read once a program is over.

A program here is that of a graph, or the body of a block. Behind a body come the next round, the
flag of a loop, and the nodes behind the block; behind a graph comes its next launch. A result that
is a temporary and not live is used by the nodes of its own program alone, so passes may do with it
there what they do outside of blocks.

This is the classic backward analysis of data flow. Only nodes that are known to overwrite all bytes
that they declare end the life of a value. Memory is cut at the ends of all accesses inside of
blocks. A set of memory is an integer with a bit for each part, which is the memory from one cut to
the next.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, Any

from cudasync.engine.hazards.interval_map import Everywhere
from cudasync.graph.control import Cond, Repeat
from cudasync.graph.placement.memory_partition import everything

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cudasync.graph.control import Control
    from cudasync.graph.node import Node


class Live:
    """The live memory at the end of one program."""

    def __init__(self, cuts: Sequence[int], bits: int) -> None:
        self._cuts = cuts
        self.bits = bits

    def meets(self, region: tuple[int, int]) -> bool:
        """True if a byte of `region` is live."""
        return bool(self.bits & _touched(self._cuts, region))

    def is_temporary(self, expression: Any) -> bool:
        """True for the expression of a node whose result only nodes of this program read."""
        return (
            expression is not None
            and expression.is_temporary
            and not self.meets(expression.result.region)
        )


# At the end of a program without blocks: each temporary is made before it is read.
NOTHING = Live((), 0)


class Liveness:
    """The analysis of one graph's program, with all bodies inside."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        inside = (
            body for node in nodes if node.control is not None for body in node.control.bodies
        )
        ends = {end for body in inside for node in everything(body) for end in _ends(node)}
        self._cuts = sorted(ends)

    def behind_launch(self, nodes: Sequence[Node]) -> Live:
        """The live memory at the end of the graph: what the next launch reads before it is made.
        Memory of arrays that the program has is not counted."""
        return Live(self._cuts, self._before(nodes, 0))

    def behind_bodies(self, nodes: Sequence[Node], live: Live) -> dict[Node, Live]:
        """For each block among `nodes`, the live memory at the end of each of its bodies, where
        `live` is that at the end of `nodes`."""
        ends: dict[Node, int] = {}
        self._before(nodes, live.bits, ends)
        return {node: Live(self._cuts, bits) for node, bits in ends.items()}

    def _before(self, nodes: Sequence[Node], live: int, ends: dict[Node, int] | None = None) -> int:
        """The live memory before `nodes`, if `live` is that behind them. `ends` gets that at the
        end of the bodies of each block among them."""
        for node in reversed(nodes):
            if node.control is not None:
                live, end = self._before_block(node.control, live)
                if ends is not None:
                    ends[node] = end
                continue
            only_read, updated, written = node.hazards[0]
            if node.is_exact:
                for each in written:
                    live &= ~_covered(self._cuts, each)
            for each in (*only_read, *updated):
                live |= _touched(self._cuts, each)
        return live

    def _before_block(self, control: Control, live: int) -> tuple[int, int]:
        """The live memory before a block, and at the end of its bodies."""
        if isinstance(control, Repeat) and not control.times:
            return live, live
        flag = 0 if control.flag is None else _touched(self._cuts, control.flag.region)
        end = live
        if control.is_loop:
            # One more round reads no more than this.
            end |= flag | self._before(control.bodies[0], 0)
        inside = 0
        for body in control.bodies:
            inside |= self._before(body, end)
        if isinstance(control, Repeat):
            return inside, end
        is_certain = isinstance(control, Cond) and len(control.bodies) > 1
        return flag | inside | (0 if is_certain else live), end


def _ends(node: Node) -> Iterator[int]:
    for part in node.hazards[0]:
        for region in part:
            if region.__class__ is not Everywhere:
                yield from region


def _touched(cuts: Sequence[int], region: tuple[int, int]) -> int:
    """The parts of memory that have a byte in common with `region`."""
    return _from_to(max(bisect_right(cuts, region[0]) - 1, 0), bisect_left(cuts, region[1]))


def _covered(cuts: Sequence[int], region: tuple[int, int]) -> int:
    """The parts of memory that are in `region` as a whole."""
    return _from_to(bisect_left(cuts, region[0]), bisect_right(cuts, region[1]) - 1)


def _from_to(first: int, last: int) -> int:
    return (1 << last) - (1 << first) if first < last else 0
