"""Floor 3, passes. Edges that follow from other edges are dropped: the transitive reduction."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.graph.hazards import reduced

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cudasync.graph.node import Node


# The ancestors of all nodes take this number squared, in bits: 13 MB.
_MOST = 10_000


def run(nodes: Sequence[Node]) -> tuple[list[Node], str]:
    """The same nodes with the necessary edges; beyond `_MOST` nodes, with all edges."""
    if len(nodes) > _MOST:
        return list(nodes), f"unchanged: more than {_MOST} nodes"
    needed = reduced(tuple(nodes))
    made = [node.at(node.index) for node in nodes]
    twin = dict(zip(nodes, made, strict=True))
    for node, before in zip(made, needed, strict=True):
        node.before = tuple(twin[each] for each in before)
    count = sum(len(node.before) for node in nodes)
    return made, f"{sum(map(len, needed))} of {count} edges are needed"
