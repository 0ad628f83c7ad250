"""Floor 3, placement. The data that a step needs and leaves, and the step on another device."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.engine.hazards.byte_ranges import Cover
from cudasync.errors import CudasyncError
from cudasync.graph.control import Repeat
from cudasync.graph.placement.memory_partition import named

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cudasync.driver import Device
    from cudasync.engine.hazards.interval_map import Region
    from cudasync.graph.node import Node


def needed(node: Node) -> list[Region]:
    """The bytes whose value it needs; also those that it writes, if it may leave some of them
    alone."""
    if isinstance(node.control, Repeat) and node.control.times:
        return _needed_at_first(node.control.bodies[0])
    only_read, updated, written = node.hazards[0]
    return named((*only_read, *updated, *(() if node.is_exact else written)))


def _needed_at_first(nodes: Sequence[Node]) -> list[Region]:
    """The earlier values that these nodes need, run one after the other."""
    overwritten = Cover()
    found: dict[Region, None] = {}
    for node in nodes:
        for region in needed(node):
            found.update(dict.fromkeys(overwritten.without(region)))
        if node.is_exact:
            for region in written_by(node):
                overwritten.add(region)
    return named(found)


def written_by(node: Node) -> list[Region]:
    """The bytes that have another value behind it."""
    _, updated, written = node.hazards[0]
    return named((*updated, *written))


def made_for(node: Node, device: Device | None) -> Node | None:
    """The node with its kernel on this device; None if it stays as it is."""
    if device is None or device is node.device or node.transfer is not None:
        return None if device is None else node
    try:
        if node.expression is not None:
            return node.computing_at(node.expression.on_device(device), node.hazards)
        assert node.launch is not None
        return node.launching(node.launch.elsewhere(device), node.hazards)
    except (CudasyncError, ValueError):
        # The device cannot have this kernel, or cannot launch this shape.
        return None
