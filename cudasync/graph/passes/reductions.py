"""Floor 3, passes. Operations on the operands of a reduction become part of the reduction.

The rules are those of `fusion`: an inlined operation makes a temporary that nothing else touches. A
reduction still combines its elements in the same order, so it gives the same bits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.graph.passes.fusion import merged
from cudasync.graph.passes.liveness import NOTHING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cudasync.graph.node import Node
    from cudasync.graph.passes.liveness import Live


def run(nodes: Sequence[Node], live: Live = NOTHING) -> tuple[list[Node], str]:
    """Inline the producers of operands into each reduction."""
    taken: list[Node] = []
    left = list(nodes)
    if any(node.expression is not None and node.expression.is_reduction for node in nodes):
        left, taken = merged(
            nodes, lambda outer, inner: outer.reduces(inner) if outer.is_reduction else None, live
        )
    size = sum(_size(node) for node in taken)
    return left, f"{len(taken)} of {len(nodes)} nodes fused, {size} bytes fewer written"


def _size(node: Node) -> int:
    start, end = node.expression.result.region
    return int(end - start)
