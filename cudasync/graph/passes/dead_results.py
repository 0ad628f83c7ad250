"""Floor 3, passes. Results that nobody can ask for, and no node reads, are not computed."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cudasync.graph.node import Node


def run(nodes: Sequence[Node]) -> tuple[list[Node], str]:
    """Drop nodes that make only temporaries and have no successors."""
    needed: set[Node] = set()
    left: list[Node] = []
    for node in reversed(nodes):
        expression = node.expression
        if expression is not None and expression.is_temporary and node not in needed:
            continue
        needed.update(node.before)
        left.append(node)
    left.reverse()
    return left, f"{len(nodes) - len(left)} of {len(nodes)} nodes removed"
