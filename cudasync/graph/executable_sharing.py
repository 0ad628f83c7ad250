"""Floor 3. Equal device segments share one executable of the driver.

A program that records a step repeatedly instantiates it once. Two segments are equal if they launch
the same kernels, of one shape and with the same bytes of arguments, in the same order. An
executable never changes while anything has it, so sharing is safe. Captured work is not compared: a
function may enqueue anything.
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
    from cudasync.graph.executable_reuse import Shelf
    from cudasync.graph.node import Node

    Origin: TypeAlias = Literal["shared", "changed", "instantiated"]

# Live executables, by their work. The key has the context's life: a reset ends it.
_KNOWN: WeakValueDictionary[Hashable, GraphExec] = WeakValueDictionary()


def shared_graph(
    nodes: Sequence[Node], device: Device, shelf: Shelf | None = None
) -> tuple[GraphExec, Origin, tuple[int, ...]]:
    """An executable of `nodes`, as `device_graph` makes it, and its origin. An existing one is
    "shared", one from the shelf was "changed" in place, any other was "instantiated". Also returns
    the end of each node in it."""
    # Predecessors in other segments are left out.
    inside = set(nodes)
    edges = [tuple(each for each in node.before if each in inside) for node in nodes]
    key = _key(nodes, edges, device, _alike)
    found = None if key is None else _KNOWN.get(key)
    if found is not None and not found.is_closed:
        # Only launches are compared, and each is one node.
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
        # Threads that meet here make one each, and each is good.
        _KNOWN[key] = made
    return made, origin, ends


def _key(
    nodes: Sequence[Node],
    edges: Sequence[Sequence[Node]],
    device: Device,
    alike: Callable[[Node], tuple[object, ...] | None],
) -> Hashable | None:
    """The key of the nodes, in their order; None if some node has no key."""
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
    """The key of a node: its work."""
    return None if node.launch is None else node.launch.alike()


def _alike_in_shape(node: Node) -> tuple[object, ...] | None:
    """The key of a node without its arguments and sizes. The driver compares captured work. A
    kernel that sets a block's condition has the condition among its arguments, so it is never
    changed."""
    if node.control is not None:
        return None
    return (None,) if node.launch is None else (node.launch.kernel,)
