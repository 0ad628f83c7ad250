"""Floor 3. A device segment that times its nodes, for profiles that ask for it.

It is the segment's graph once more, with an event before and behind each node. A launch keeps the
events until they are read, so each launch in flight has a graph of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.driver import Event
from cudasync.graph.device_graph import device_graph

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cudasync.driver import Device, Stream
    from cudasync.graph.node import Node
    from cudasync.graph.parts.intact import IntactGraphs


class Timed:
    """One executable with its events."""

    def __init__(
        self, nodes: Sequence[Node], device: Device, intact: IntactGraphs, home: list[Timed]
    ) -> None:
        inside = set(nodes)
        edges = [tuple(each for each in node.before if each in inside) for node in nodes]
        self._events = {
            node: (Event(device, timing=True), Event(device, timing=True)) for node in nodes
        }
        executable, self.ends = device_graph(nodes, edges, device, events=self._events)
        self._executable = executable.keeping(intact)
        # The list of idle graphs to which it returns.
        self._home = home

    def launch(self, stream: Stream, event: Event | None = None) -> None:
        self._executable.launch(stream, event)

    def since(self, origin: Event) -> list[tuple[Node, float, float]]:
        """Each node with the microseconds from `origin` to its start and end, once a launch is
        over. Raises CudaError if the device is lost."""
        return [
            (node, start.elapsed_ms(origin) * 1e3, end.elapsed_ms(origin) * 1e3)
            for node, (start, end) in self._events.items()
        ]

    def give_back(self) -> None:
        """Its times were read: another launch may take it."""
        self._home.append(self)


class TimedGraphs:
    """The timed graphs of one segment, made as needed. Any number of threads may ask at once."""

    def __init__(self, nodes: Sequence[Node], device: Device, intact: IntactGraphs) -> None:
        self._nodes, self._device, self._intact = nodes, device, intact
        self._idle: list[Timed] = []

    def take(self) -> Timed:
        """A graph for a launch, which has it until its times are read. Making a graph calls each
        function of a stream once more."""
        try:
            return self._idle.pop()
        except IndexError:
            return Timed(self._nodes, self._device, self._intact, self._idle)
