"""Floor 3, passes. Consecutive elementwise operations become one kernel.

An operation is inlined into the reader of its result, if the result is a temporary that nothing
else touches. It is then computed later than before, so no node in between may write its operands.
The floor above, which knows what operations compute, merges two expressions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cudasync.graph.passes.liveness import NOTHING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from cudasync.engine.hazards.interval_map import Region
    from cudasync.graph.node import Node
    from cudasync.graph.passes.liveness import Live


def run(nodes: Sequence[Node], live: Live = NOTHING) -> tuple[list[Node], str]:
    """Inline the producers of operands into each operation."""
    left, taken = merged(nodes, lambda outer, inner: outer.takes_in(inner), live)
    return left, f"{len(taken)} of {len(nodes)} nodes fused into other nodes"


def merged(
    nodes: Sequence[Node], take: Callable[[Any, Any], Any], live: Live
) -> tuple[list[Node], list[Node]]:
    """The program after inlining, and the inlined nodes.

    `take(outer, inner)` returns one expression for both, where `outer` reads the result of `inner`,
    or None. What is `live` is not inlined.
    """
    program = _Program(nodes, take, live)
    for node in nodes:
        while program.take_one(node):
            pass
    inside: dict[Node, list[Node]] = {}
    for inner in program.taken:
        inside.setdefault(program.last(inner), []).append(inner)
    left = [
        node.computing(program.expressions[node], inside[node]) if node in inside else node
        for node in nodes
        if node not in program.taken
    ]
    return left, list(program.taken)


class _Program:
    """The current expression of each node, and the edges among the remaining nodes."""

    def __init__(self, nodes: Sequence[Node], take: Callable[[Any, Any], Any], live: Live) -> None:
        self._take = take
        self._live = live
        self.expressions: dict[Node, Any] = {node: node.expression for node in nodes}
        self.before: dict[Node, set[Node]] = {node: set(node.before) for node in nodes}
        self.after: dict[Node, set[Node]] = {node: set() for node in nodes}
        for node in nodes:
            for other in node.before:
                self.after[other].add(node)
        # For each inlined node, the node that took it in.
        self.taken: dict[Node, Node] = {}

    def take_one(self, node: Node) -> bool:
        """Inline one predecessor into `node`; False if none can be inlined."""
        mine = self.expressions[node]
        if mine is None:
            return False
        for inner in sorted(self.before[node], key=lambda each: each.index, reverse=True):
            if self._is_nodes_own(inner, node):
                fused = self._take(mine, self.expressions[inner])
                if fused is not None:
                    self.expressions[node] = fused
                    self._merge(inner, node)
                    return True
        return False

    def last(self, node: Node) -> Node:
        """The remaining node that contains it."""
        while node in self.taken:
            node = self.taken[node]
        return node

    def _is_nodes_own(self, inner: Node, node: Node) -> bool:
        """True if `node` may compute `inner` in its own place without visible difference."""
        made = self.expressions[inner]
        if not self._live.is_temporary(made):
            return False
        if inner.device is not node.device or inner.priority != node.priority:
            return False
        only_read, updated, written = made.regions
        for other in self.after[inner] - {node}:
            theirs = self._regions(other)
            if _meet((*updated, *written), (*theirs[0], *theirs[1], *theirs[2])):
                return False
            is_between = other.index < node.index
            if is_between and _meet(only_read, (*theirs[1], *theirs[2])):
                return False
        return True

    def _merge(self, inner: Node, node: Node) -> None:
        self.taken[inner] = node
        self.before[node].remove(inner)
        for other in self.before[inner]:
            self.after[other].remove(inner)
            self.after[other].add(node)
            self.before[node].add(other)
        # A node that overwrites an operand of `inner` must now come after `node`.
        for other in self.after[inner] - {node}:
            self.before[other].remove(inner)
            self.before[other].add(node)
            self.after[node].add(other)

    def _regions(self, node: Node) -> Any:
        expression = self.expressions[node]
        return node.hazards[0] if expression is None else expression.regions


def _meet(some: Iterable[Region], others: Sequence[Region]) -> bool:
    return any(one[0] < other[1] and other[0] < one[1] for one in some for other in others)
