"""Floor 3, passes. Elementwise operations in a row become one kernel.

An operation is taken in by the one that reads its result, where that result is a temporary and
nothing else touches it. It is computed later than before, so nothing in between may write what it
reads. How two become one is the affair of the floor that knows what they compute.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from cudasync.engine.hazards.interval_map import Region
    from cudasync.graph.node import Node


def run(nodes: Sequence[Node]) -> tuple[list[Node], str]:
    """Let each operation take in what made its operands."""
    left, taken = merged(nodes, lambda outer, inner: outer.takes_in(inner))
    return left, f"{len(taken)} of {len(nodes)} nodes taken in by others"


def merged(nodes: Sequence[Node], take: Callable[[Any, Any], Any]) -> tuple[list[Node], list[Node]]:
    """The program with nodes inside of others, and which these are.

    `take(outer, inner)` gives one expression for two of which the first reads what the second
    makes, or None.
    """
    program = _Program(nodes, take)
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
    """What each node computes by now, and the edges among those that are left."""

    def __init__(self, nodes: Sequence[Node], take: Callable[[Any, Any], Any]) -> None:
        self._take = take
        self.expressions: dict[Node, Any] = {node: node.expression for node in nodes}
        self.before: dict[Node, set[Node]] = {node: set(node.before) for node in nodes}
        self.after: dict[Node, set[Node]] = {node: set() for node in nodes}
        for node in nodes:
            for other in node.before:
                self.after[other].add(node)
        # By whom, for those that are gone.
        self.taken: dict[Node, Node] = {}

    def take_one(self, node: Node) -> bool:
        """Let `node` take in one of those that it comes after; False if there is none to take."""
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
        """The node that has it inside."""
        while node in self.taken:
            node = self.taken[node]
        return node

    def _is_nodes_own(self, inner: Node, node: Node) -> bool:
        """True if `node` may compute `inner` in its place: nobody else sees the difference."""
        made = self.expressions[inner]
        if made is None or not made.is_temporary:
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
        # Whoever overwrites what it read comes after where it is read now.
        for other in self.after[inner] - {node}:
            self.before[other].remove(inner)
            self.before[other].add(node)
            self.after[node].add(other)

    def _regions(self, node: Node) -> Any:
        expression = self.expressions[node]
        return node.hazards[0] if expression is None else expression.regions


def _meet(some: Iterable[Region], others: Sequence[Region]) -> bool:
    return any(one[0] < other[1] and other[0] < one[1] for one in some for other in others)
