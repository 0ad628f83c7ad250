"""Floor 3, passes. Chains of host functions become one node.

A function is joined with its only predecessor if it is that one's only successor, so no order is
added. The node has the functions as its steps, so a failure is that of one step (`parts/host`). A
chain that is found to take long is spread again, as other functions are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.graph.hazards import reduced

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cudasync.graph.node import Node

# Beyond this, edges are not reduced: the ancestors of all nodes take this number squared, in bits.
_MOST = 10_000


def run(nodes: Sequence[Node]) -> tuple[list[Node], str]:
    """Join chains of host functions."""
    following = _following(nodes)
    behind = set(following.values())
    left: list[Node] = []
    count = 0
    for node in nodes:
        if node in behind:
            continue
        chain = [node]
        while chain[-1] in following:
            chain.append(following[chain[-1]])
        if len(chain) > 1:
            count += 1
            steps = [step for each in chain for step in each.steps or (each,)]
            node = node.followed_by([step.at(len(left)) for step in steps])
        left.append(node)
    gone = len(nodes) - len(left)
    return left, f"{gone} of {len(nodes)} nodes merged into their predecessors, in {count} chains"


def _following(nodes: Sequence[Node]) -> dict[Node, Node]:
    """For each node, the node that it is joined with, if any."""
    if sum(map(_is_on_host, nodes)) < 2:
        return {}
    is_small = len(nodes) <= _MOST
    needed = reduced(tuple(nodes)) if is_small else [node.before for node in nodes]
    # For each node its only successor; None if there are several.
    after: dict[Node, Node | None] = {}
    for node, before in zip(nodes, needed, strict=True):
        for other in before:
            after[other] = None if other in after else node
    return {
        before[0]: node
        for node, before in zip(nodes, needed, strict=True)
        if len(before) == 1 and after[before[0]] is node and _may_meet(before[0], node)
    }


def _is_on_host(node: Node) -> bool:
    return node.device is None and node.transfer is None and not node.is_alone


def _may_meet(one: Node, other: Node) -> bool:
    are_on_host = _is_on_host(one) and _is_on_host(other)
    return are_on_host and (one.pool, one.priority) == (other.pool, other.priority)
