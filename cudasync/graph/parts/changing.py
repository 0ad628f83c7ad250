"""Floor 3, parts. Launches of one device as a graph of the driver, whose numbers change.

Each launch of the graph gives the arguments of some of its kernels anew. Their nodes of the
executable are changed before it, which concerns no launch that is enqueued already. One thread at a
time changes and launches an executable: two threads take two.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

from cudasync.driver.graph import Graph

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from cudasync.driver import Device, Event, Stream
    from cudasync.driver.graph import GraphExec
    from cudasync.graph.node import Node


class _Executable(NamedTuple):
    # It must stay open: its nodes are named.
    graph: Graph
    launch: Callable[..., None]
    # For each node that changes: the bytes of its arguments, and what lets the node use them.
    changes: Sequence[tuple[Any, Callable[[], None]]]


class ChangingGraph:
    """`changing` are those of `nodes`, all of them launches, whose arguments change."""

    def __init__(self, nodes: Sequence[Node], device: Device, changing: Collection[Node]) -> None:
        self._nodes = tuple(nodes)
        self._device = device
        self._changing = tuple(node for node in nodes if node in changing)
        # deque.pop and append are one C call each: no two threads get the same executable.
        self._idle: deque[_Executable] = deque([self._another()])

    def launch(
        self, arguments: Sequence[bytes], stream: Stream, event: Event | None = None
    ) -> None:
        """Enqueue it with the packed arguments of each changing node; then record `event`."""
        try:
            executable = self._idle.pop()
        except IndexError:
            executable = self._another()
        for (buffer, follow), bits in zip(executable.changes, arguments, strict=True):
            buffer[: len(bits)] = bits
            follow()
        executable.launch(stream, event)
        self._idle.append(executable)

    def _another(self) -> _Executable:
        graph = Graph(self._device)
        launches: dict[Node, Any] = {node: node.launch for node in self._nodes}
        for node in self._changing:
            launches[node] = launches[node].aimed(None, {})
        made: dict[Node, Any] = {}
        for node, launch in launches.items():
            made[node] = graph.add_kernel(launch, [made[each] for each in node.before])
        executable: GraphExec = graph.instantiate()
        changes = [
            (launches[node].block.buffer, executable.follower(made[node], launches[node]))
            for node in self._changing
        ]
        return _Executable(graph, executable.launch, changes)
