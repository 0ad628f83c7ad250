"""Floor 3, parts. A part is a segment made ready; each launch pushes it as one op."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from cudasync.graph.parts.block import BlockPart, Body
from cudasync.graph.parts.device import DevicePart
from cudasync.graph.parts.host import HostPart
from cudasync.graph.parts.single_op import AlonePart
from cudasync.graph.segments import cut, needed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cudasync.graph.executable_reuse import Shelf
    from cudasync.graph.node import Node
    from cudasync.graph.segments import Segment

Part: TypeAlias = AlonePart | BlockPart | DevicePart | HostPart


def part_of(segment: Segment, shelf: Shelf | None = None) -> Part:
    """The part that pushes `segment`, with driver executables from the shelf, if there is one."""
    if segment.is_alone:
        node = segment.nodes[0]
        if node.control is None:
            return AlonePart(node)
        return BlockPart(node, [_body_of(body, shelf) for body in node.control.bodies])
    return HostPart(segment) if segment.device is None else DevicePart(segment, shelf)


def _body_of(nodes: Sequence[Node], shelf: Shelf | None) -> Body:
    segments = cut(nodes, is_round=True)
    return Body([part_of(each, shelf) for each in segments], needed(segments))
