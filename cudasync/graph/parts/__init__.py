"""Floor 3, parts. A segment each, made ready, pushed as one op a launch."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from cudasync.graph.parts.alone import AlonePart
from cudasync.graph.parts.block import BlockPart
from cudasync.graph.parts.device import DevicePart
from cudasync.graph.parts.host import HostPart
from cudasync.graph.segments import cut

if TYPE_CHECKING:
    from cudasync.graph.segments import Segment

Part: TypeAlias = AlonePart | BlockPart | DevicePart | HostPart


def part_of(segment: Segment) -> Part:
    """What pushes `segment`."""
    if segment.is_alone:
        node = segment.nodes[0]
        if node.control is None:
            return AlonePart(node)
        return BlockPart(node, [list(map(part_of, cut(body))) for body in node.control.bodies])
    return HostPart(segment) if segment.device is None else DevicePart(segment)
