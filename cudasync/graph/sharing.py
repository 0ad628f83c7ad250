"""Floor 3. Segments of a device that do the same have one executable of the driver between them.

A program that records a step again and again instantiates it once. Two do the same if they launch
the same kernels, of one shape and with the same bytes of arguments, in the same order: an
executable is never changed, so it does not matter who has it. What is captured is not compared: a
function may enqueue anything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from cudasync.graph.device_graph import device_graph

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from cudasync.driver import Device
    from cudasync.driver.graph import GraphExec
    from cudasync.graph.node import Node

# What somebody has, by what it does. A life of the context is part of that: a reset ends it.
_KNOWN: WeakValueDictionary[Hashable, GraphExec] = WeakValueDictionary()


def shared_graph(nodes: Sequence[Node], device: Device) -> tuple[GraphExec, bool, tuple[int, ...]]:
    """An executable of `nodes`, as `device_graph` makes it; True if somebody had it already; and
    where each node ends in it."""
    # What a node comes after in other segments is not among these.
    inside = set(nodes)
    edges = [tuple(each for each in node.before if each in inside) for node in nodes]
    key = _alike(nodes, edges, device)
    if key is None:
        made, ends = device_graph(nodes, edges, device)
        return made, False, ends
    found = _KNOWN.get(key)
    if found is not None and not found.is_closed:
        # Launches alone are compared: a node each.
        return found, True, tuple(range(1, len(nodes) + 1))
    # Threads that come here together make one each, and each is good.
    made, ends = device_graph(nodes, edges, device)
    _KNOWN[key] = made
    return made, False, ends


def _alike(
    nodes: Sequence[Node], edges: Sequence[Sequence[Node]], device: Device
) -> Hashable | None:
    """What the nodes do, in which order; None if that can not be told."""
    place = {node: at for at, node in enumerate(nodes)}
    steps: list[tuple[object, ...]] = []
    for node, before in zip(nodes, edges, strict=True):
        if node.launch is None:
            return None
        steps.append((*node.launch.alike(), tuple(place[each] for each in before)))
    device.context.enter()
    return device.context.token, tuple(steps)
