"""Floor 3. Segments of a device that do the same have one executable of the driver between them.

A program that records a step again and again instantiates it once. Two do the same if they launch
the same kernels, of one shape and with the same bytes of arguments, in the same order: an
executable is not changed while anybody has it, so it does not matter who that is. What is captured
is not compared: a function may enqueue anything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal
from weakref import WeakValueDictionary

from cudasync.graph.device_graph import device_graph, urgent

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence
    from typing import TypeAlias

    from cudasync.driver import Device
    from cudasync.driver.graph import Graph, GraphExec
    from cudasync.graph.node import Node
    from cudasync.graph.shelf import Shelf

    Origin: TypeAlias = Literal["shared", "changed", "instantiated"]

# What somebody has, by what it does. A life of the context is part of that: a reset ends it.
_KNOWN: WeakValueDictionary[Hashable, GraphExec] = WeakValueDictionary()


def shared_graph(
    nodes: Sequence[Node], device: Device, shelf: Shelf | None = None
) -> tuple[GraphExec, Origin, tuple[int, ...]]:
    """An executable of `nodes`, as `device_graph` makes it, and how: one that somebody had already
    is "shared", one of the shelf was "changed" in place, any other was "instantiated". Besides,
    where each node ends in it."""
    # What a node comes after in other segments is not among these.
    inside = set(nodes)
    edges = [tuple(each for each in node.before if each in inside) for node in nodes]
    key = _key(nodes, edges, device, _alike)
    found = None if key is None else _KNOWN.get(key)
    if found is not None and not found.is_closed:
        # Launches alone are compared: a node each.
        return found, "shared", tuple(range(1, len(nodes) + 1))
    shape = None if shelf is None else _key(nodes, edges, device, _alike_in_shape)
    origin: Origin = "instantiated"

    def ready(graph: Graph) -> GraphExec:
        nonlocal origin
        if shelf is None:
            return graph.instantiate()
        made, is_changed = shelf.executable(graph, shape)
        if is_changed:
            origin = "changed"
        return made

    made, ends = device_graph(nodes, edges, device, ready)
    if key is not None:
        # Threads that come here together make one each, and each is good.
        _KNOWN[key] = made
    return made, origin, ends


def _key(
    nodes: Sequence[Node],
    edges: Sequence[Sequence[Node]],
    device: Device,
    alike: Callable[[Node], tuple[object, ...] | None],
) -> Hashable | None:
    """What is told of the nodes, in their order; None if something can not be told of one."""
    place = {node: at for at, node in enumerate(nodes)}
    first = urgent(nodes)
    steps: list[tuple[object, ...]] = []
    for node, before in zip(nodes, edges, strict=True):
        said = alike(node)
        if said is None:
            return None
        steps.append((*said, node in first, tuple(place[each] for each in before)))
    device.context.enter()
    return device.context.token, tuple(steps)


def _alike(node: Node) -> tuple[object, ...] | None:
    """What a node does."""
    return None if node.launch is None else node.launch.alike()


def _alike_in_shape(node: Node) -> tuple[object, ...] | None:
    """What a node does, but for its arguments and sizes. What was captured is compared by the
    driver; what sets the condition of a block has it among its arguments, and is not changed."""
    if node.control is not None:
        return None
    return (None,) if node.launch is None else (node.launch.kernel,)
