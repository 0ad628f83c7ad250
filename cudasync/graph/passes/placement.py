"""Floor 3, passes. Steps on `cs.ANY` memory go to the devices where the whole ends soonest.

HEFT chooses the devices, by the measured or estimated costs of steps and of moving data
(`placement/plan`). Moves are ordinary copies between devices. A program that gains nothing, such as
a chain, stays on one device.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from cudasync.driver import Device, device_count
from cudasync.graph.placement.memory_partition import Pieces, everything
from cudasync.graph.placement.movable_steps import free_nodes
from cudasync.graph.placement.plan import Planner
from cudasync.graph.placement.rewriting import Placed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cudasync.graph.node import Node


def run(nodes: Sequence[Node]) -> tuple[Sequence[Node], str]:
    """Place the free steps."""
    if not any(node.anywhere for node in everything(nodes)):
        return nodes, "no step was recorded for any_device"
    devices = [Device(ordinal) for ordinal in range(device_count())]
    pieces = Pieces(nodes)
    free = free_nodes(nodes, pieces)
    places, end_s, home_s = Planner(pieces, free, devices).plan(nodes)
    if not places:
        count = sum(node.control is None for node in free)
        return nodes, f"{count} steps stay together: no other placement is faster"
    placed = Placed(nodes, pieces, places)
    counts = Counter(device.ordinal for device in places.values())
    said = ", ".join(f"{count} on device {ordinal}" for ordinal, count in sorted(counts.items()))
    line = f"{said}, {placed.moves} moves of {placed.moved_bytes} bytes"
    if placed.refused:
        line += f", {placed.refused} could not be built for their device"
    return placed.nodes, line + f", in {end_s * 1e6:.1f} us instead of {home_s * 1e6:.1f}"
