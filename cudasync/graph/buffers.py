"""Floor 3. Memory that a program names and its owner may free: buffers of the driver layer.

Arrays live as long as the graph. The owner of a buffer may close it; a launch that would use the
buffer is then refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cudasync.driver import DeviceBuffer
from cudasync.driver.memory.buffer import DeviceView
from cudasync.errors import ClosedError
from cudasync.graph.node import Node

if TYPE_CHECKING:
    from collections.abc import Iterable


class Buffers:
    """The buffers that nodes name, each with the first such node."""

    def __init__(self, nodes: Iterable[Node]) -> None:
        self._users: dict[DeviceBuffer, Node] = {}
        for node in nodes:
            for buffer in _named(node):
                self._users.setdefault(buffer, node)

    def __bool__(self) -> bool:
        return bool(self._users)

    def raise_if_closed(self) -> None:
        """Raise ClosedError if one of them was freed."""
        for buffer, node in self._users.items():
            if buffer.is_closed:
                raise ClosedError(
                    f"node {node.index} ({node.name}), recorded at {node.push_site}, uses a buffer "
                    f"of {buffer.size_bytes} bytes that was closed: record the graph with an "
                    f"open buffer"
                )


def _named(thing: Any) -> Iterable[DeviceBuffer]:
    if isinstance(thing, DeviceBuffer):
        yield thing
    elif isinstance(thing, DeviceView):
        yield thing.buffer
    elif isinstance(thing, Node):
        yield from _named(thing.kept)
        if thing.launch is not None:
            yield from _named(thing.launch.kept)
        if thing.control is not None:
            yield from _named(thing.control.bodies)
    elif isinstance(thing, (tuple, list)):
        for each in thing:
            yield from _named(each)
