"""Floor 3, parts. A segment each, made ready, pushed as one op a launch."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from cudasync.graph.parts.alone import AlonePart
from cudasync.graph.parts.device import DevicePart
from cudasync.graph.parts.host import HostPart

if TYPE_CHECKING:
    from cudasync.graph.segments import Segment

Part: TypeAlias = AlonePart | DevicePart | HostPart


def part_of(segment: Segment) -> Part:
    """What pushes `segment`."""
    if segment.is_alone:
        return AlonePart(segment.nodes[0])
    return HostPart(segment) if segment.device is None else DevicePart(segment)
