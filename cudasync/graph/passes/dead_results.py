"""Floor 3, passes. Results that nobody can ask for, and no node reads, are not computed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.graph.passes.liveness import NOTHING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cudasync.graph.node import Node
    from cudasync.graph.passes.liveness import Live


def run(nodes: Sequence[Node], live: Live = NOTHING) -> tuple[list[Node], str]:
    """Drop nodes that make only temporaries, which are not `live`, and have no successors."""
    needed: set[Node] = set()
    left: list[Node] = []
    for node in reversed(nodes):
        if node not in needed and live.is_temporary(node.expression):
            continue
        needed.update(node.before)
        left.append(node)
    left.reverse()
    return left, f"{len(nodes) - len(left)} of {len(nodes)} nodes removed"
