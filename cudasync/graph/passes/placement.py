"""Floor 3, passes. Steps that were recorded for any device go where all ends soonest.

Which device does what is found by HEFT over what steps cost, measured or estimated, and what it
takes to move data (`placement/schedule`). Moves are copies between devices, as any others. A
program that gains nothing by that, as a chain, stays on one device.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from cudasync.driver import Device, device_count
from cudasync.graph.figures import bytes_of, seconds_of
from cudasync.graph.placement import costs
from cudasync.graph.placement.freedom import free_nodes
from cudasync.graph.placement.moves import Placed, needed, written_by
from cudasync.graph.placement.pieces import Pieces
from cudasync.graph.placement.schedule import Task, at_home, scheduled

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cudasync.graph.node import Node
    from cudasync.graph.placement.pieces import Piece


def run(nodes: Sequence[Node]) -> tuple[Sequence[Node], str]:
    """Place what may be anywhere."""
    if not any(node.anywhere for node in nodes):
        return nodes, "nothing was recorded for any device"
    devices = [Device(ordinal) for ordinal in range(device_count())]
    pieces = Pieces(nodes)
    free = free_nodes(nodes, pieces)
    tasks = _tasks(nodes, pieces, free, devices)
    found, here = scheduled(tasks, costs.link), at_home(tasks, costs.link)
    if not found.end_s < here.end_s:
        return nodes, f"{len(free)} steps stay together, which nothing is quicker than"
    chosen: Any = {
        node: place for node, place in zip(nodes, found.places, strict=True) if node in free
    }
    placed = Placed(nodes, pieces, chosen)
    counts = Counter(device.ordinal for device in chosen.values())
    said = ", ".join(f"{count} on device {ordinal}" for ordinal, count in sorted(counts.items()))
    line = f"{said}, {placed.moves} moves of {placed.moved_bytes} bytes"
    if placed.refused:
        line += f", {placed.refused} could not be made for their device"
    return placed.nodes, line + f", in {found.end_s * 1e6:.1f} us instead of {here.end_s * 1e6:.1f}"


def _tasks(
    nodes: Sequence[Node], pieces: Pieces, free: set[Node], devices: Sequence[Device]
) -> list[Task]:
    """The steps as tasks: what each needs of which other, and where it may be done."""
    place = {node: at for at, node in enumerate(nodes)}
    # Who wrote each part last.
    writer: dict[tuple[Piece, int], int] = {}
    tasks: list[Task] = []
    for at, node in enumerate(nodes):
        before = {place[other]: 0 for other in node.before}
        needs: list[tuple[Any, int]] = []
        for region in needed(node):
            piece = pieces.of(region)
            for part in piece.parts(region):
                size = piece.cuts[part + 1] - piece.cuts[part]
                other = writer.get((piece, part))
                if other is not None:
                    before[other] = before.get(other, 0) + size
                elif not (piece.is_temporary and piece.is_anywhere):
                    needs.append((piece.device, size))
        for region in written_by(node):
            piece = pieces.of(region)
            writer.update(((piece, part), at) for part in piece.parts(region))
        tasks.append(Task(_seconds(node, free, devices), list(before.items()), needs))
    leaves: dict[int, Counter[Any]] = {}
    for (piece, part), at in writer.items():
        if not piece.is_temporary:
            size = piece.cuts[part + 1] - piece.cuts[part]
            leaves.setdefault(at, Counter())[piece.device] += size
    for at, found in leaves.items():
        tasks[at] = tasks[at]._replace(leaves=list(found.items()))
    return tasks


def _seconds(node: Node, free: set[Node], devices: Sequence[Device]) -> dict[Any, float]:
    """Where it may be done, and how long it takes there: first where it was recorded."""
    if node.device is None:
        return {None: seconds_of(node, bytes_of(node))}
    places = dict.fromkeys([node.device, *(devices if node in free else ())])
    return {device: costs.seconds_on(node, device) for device in places}
