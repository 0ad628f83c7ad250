"""Floor 3. Cuts a program into segments: work for one launch of the driver, or for one worker.

A segment has one place: a device, or a pool of workers. No segment depends on a later one. Inside
of a segment the nodes stand in the order of their pushes. A node that `is_alone` is a segment by
itself.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cudasync.engine.batch.union import Union

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cudasync.driver import Device
    from cudasync.engine.hazards.accesses import Accesses
    from cudasync.graph.node import Node


@dataclass
class Segment:
    """Nodes of one place."""

    device: Device | None
    pool: str
    priority: int
    is_alone: bool
    nodes: list[Node] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The name of its op."""
        if len(self.nodes) == 1 and not self.nodes[0].steps:
            return self.nodes[0].name
        return f"graph of {sum(len(node.steps) or 1 for node in self.nodes)}"

    def accesses(self) -> Accesses:
        """Its outer reads and its writes, as of one op."""
        union = Union()
        for node in self.nodes:
            union.add(node.hazards)
        return union.accesses()


def cut(nodes: Sequence[Node]) -> list[Segment]:
    """The segments of a program: each node joins the first one of its place that comes late enough.

    A node must stand behind its predecessors; later in the same segment counts as behind.
    """
    segments: list[Segment] = []
    # The positions of the segments of a place, in order.
    of_place: dict[Any, list[int]] = {}
    position: dict[Node, int] = {}
    for node in nodes:
        place = (node.device, node.pool, node.priority)
        earliest = 0
        for other in node.before:
            at = position[other]
            is_joined = not node.is_alone and _place(segments[at]) == place
            earliest = max(earliest, at if is_joined and not segments[at].is_alone else at + 1)
        found = None
        if not node.is_alone:
            for at in of_place.get(place, ()):
                if at >= earliest:
                    found = at
                    break
        if found is None:
            found = len(segments)
            segments.append(Segment(*place, is_alone=node.is_alone))
            if not node.is_alone:
                of_place.setdefault(place, []).append(found)
        segments[found].nodes.append(node)
        position[node] = found
    return segments


def stages(segments: Sequence[Segment]) -> list[list[Segment]]:
    """The segments of a program by the longest path that leads to them: those of a stage need
    nothing of each other, and nothing of later stages."""
    stage_of: dict[Node, int] = {}
    found: list[list[Segment]] = []
    for segment in segments:
        before = (
            stage_of[other] for node in segment.nodes for other in node.before if other in stage_of
        )
        at = max(before, default=-1) + 1
        stage_of.update(dict.fromkeys(segment.nodes, at))
        found += [[]] * (at == len(found))
        found[at] = [*found[at], segment]
    return found


def _place(segment: Segment) -> tuple[Any, ...]:
    return segment.device, segment.pool, segment.priority
