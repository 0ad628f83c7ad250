"""Floor 3, passes. Copies of adjacent memory become one copy, and so do fills.

The first of two is done with the second, so no node in between may depend on the first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cudasync.graph.node import Node
    from cudasync.graph.transfers import Transfer

# The number of earlier copies that are compared with each copy.
_WINDOW = 32


def run(nodes: Sequence[Node]) -> tuple[list[Node], str]:
    """Join adjacent copies and fills."""
    # For each node, the first node that depends on it.
    followed: dict[Node, int] = {}
    for node in nodes:
        for other in node.before:
            followed.setdefault(other, node.index)
    # For each remaining node, its joined transfer and the recorded nodes in it.
    joined: dict[Node, tuple[Transfer, list[Node]]] = {}
    for node in nodes:
        if node.transfer is None:
            continue
        done, inside = node.transfer, [node]
        for other in [each for each in joined if _may_meet(each, node)][-_WINDOW:]:
            theirs, others = joined[other]
            if any(followed.get(each, len(nodes)) <= node.index for each in others):
                continue
            both = theirs.joined(done)
            if both is not None:
                done, inside = both, [*others, *inside]
                del joined[other]
        joined[node] = done, inside
    gone = {each for node, (_, inside) in joined.items() for each in inside if each is not node}
    left = [
        node.transferring(joined[node][0], joined[node][1])
        if node in joined and len(joined[node][1]) > 1
        else node
        for node in nodes
        if node not in gone
    ]
    return left, f"{len(gone)} of {len(nodes)} nodes merged into other nodes"


def _may_meet(one: Node, other: Node) -> bool:
    return _kind_of(one) == _kind_of(other)


def _kind_of(node: Node) -> tuple[object, ...]:
    return node.device, node.priority, node.pool, node.is_blocking
