"""Floor 3, passes. Blocks with only work of one device inside become work of that device.

The driver has nodes that run a graph if a condition holds, or while it holds. So a loop with any
number of rounds is a part of one launch, and nothing waits for its flag. The engine runs all other
blocks.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from cudasync.driver import DeviceBuffer
from cudasync.driver.extensions.declared_accesses import is_checked
from cudasync.driver.graph.condition_setters import COUNTER_BYTES, MOST_ROUNDS, can_decide
from cudasync.graph.control import Repeat
from cudasync.graph.hazards import ordered

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cudasync.driver import Device
    from cudasync.graph.control import Control
    from cudasync.graph.node import Node


def run(nodes: Sequence[Node]) -> tuple[list[Node], str]:
    """Move the blocks that a device can run, nested ones too, and drop those repeated 0 times.

    In checked mode nothing is moved: a kernel that a condition launches is held to nothing.
    """
    if is_checked():
        return list(nodes), "left to the engine, which checks each round"
    count = [0, 0]
    moved = _moved(nodes, count)
    line = f"{count[0]} of {count[1]} blocks are conditional nodes of the driver"
    return list(moved), line


def _moved(nodes: Sequence[Node], count: list[int]) -> Sequence[Node]:
    if not any(node.control is not None for node in nodes):
        return nodes
    left = [node for node in nodes if not _is_nothing(node)]
    return ordered([_block(node, count) if node.control is not None else node for node in left])


def undone(nodes: Sequence[Node]) -> Sequence[Node]:
    """The program with all blocks left to the engine again, as before this pass."""
    if not any(node.control is not None for node in nodes):
        return nodes
    return ordered([node if node.control is None else _undone(node) for node in nodes])


def _undone(node: Node) -> Node:
    control = node.control
    assert control is not None
    control = control.with_bodies(list(map(undone, control.bodies)))
    if isinstance(control, Repeat):
        control = replace(control, counter=None)
    return node.on_engine(control)


def _is_nothing(node: Node) -> bool:
    return isinstance(node.control, Repeat) and not node.control.times


def _block(node: Node, count: list[int]) -> Node:
    """The block, with nested blocks moved; on a device, if everything inside is on that device."""
    control = node.control
    assert control is not None
    count[1] += 1
    bodies = [_moved(body, count) for body in control.bodies]
    control = control.with_bodies(bodies)
    place = _place_of(control)
    if place is None:
        return node.controlling(control)
    count[0] += 1
    device, priority = place
    if isinstance(control, Repeat):
        control = replace(control, counter=DeviceBuffer(COUNTER_BYTES, device))
    return node.controlling(control).on_device(device, priority)


def _place_of(control: Control) -> tuple[Device, int] | None:
    """The device that can run the whole block, and the priority; None if there is none."""
    inside = [each for body in control.bodies for each in body]
    if not inside or not all(map(_can_be_inside, inside)):
        return None
    places = {(each.device, each.priority) for each in inside}
    device, priority = places.pop()
    if places or device is None or not can_decide(len(control.bodies)):
        return None
    if isinstance(control, Repeat):
        return (device, priority) if control.times <= MOST_ROUNDS else None
    if control.flag is None or control.flag.device is not device:
        return None
    return device, priority


def _can_be_inside(node: Node) -> bool:
    """True for nodes that a body in the driver's graph may contain: launches, blocks, and copies
    within a device and fills. The work of a user's function is unknown."""
    if node.device is None or node.is_alone:
        return False
    if node.transfer is not None:
        places = [node.transfer.target, node.transfer.source]
        return all(place is None or place[1] is node.device for place in places)
    return node.launch is not None or node.control is not None
