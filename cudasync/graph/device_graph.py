"""Floor 3. The nodes of a segment on a device, as one graph of the driver."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cudasync.driver import Stream
from cudasync.driver.device import highest_priority
from cudasync.driver.graph import Graph
from cudasync.driver.graph.setting import ask, begin, count_down
from cudasync.errors import CudasyncError
from cudasync.graph.control import Cond, Repeat
from cudasync.graph.hazards import reduced

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from cudasync.driver import Device, Event, Launch
    from cudasync.driver.graph import GraphExec, GraphNode
    from cudasync.graph.node import Node

# As the driver has it, where less goes first.
_BEFORE_OTHERS = -1


def device_graph(
    nodes: Sequence[Node],
    edges: Sequence[Sequence[Node]],
    device: Device,
    ready: Callable[[Graph], GraphExec] = Graph.instantiate,
    events: Mapping[Node, tuple[Event, Event]] | None = None,
) -> tuple[GraphExec, tuple[int, ...]]:
    """An executable of `nodes`, each behind those of them that `edges` names, and no others: what
    `ready` makes of their graph.

    A launch is a node by itself, and a block a conditional node. Any other function is called once,
    with a stream that is captured; what it enqueues is what each launch of the graph does. Raises
    what it raises. Besides, for each node, how many nodes the driver's graph has up to and with it.
    With `events`, one is recorded before each node, and one behind it, which others come after.
    """
    graph = Graph(device)
    stream = Stream(device)
    try:
        counts: list[int] = []
        filling = _Filling(device, stream, urgent(nodes), events or {})
        filling.add(graph, nodes, edges, counts)
        return ready(graph), tuple(counts)
    finally:
        stream.close()
        graph.close()


def urgent(nodes: Sequence[Node]) -> set[Node]:
    """Those whose kernels go before others: on the first stream, where there are several."""
    if not any(node.stream for node in nodes):
        return set()
    # With a priority of the user's the whole segment has that.
    return {node for node in nodes if not node.stream and not node.priority}


class _Filling:
    """Graphs of the driver while they are filled: that of a segment, and bodies inside."""

    def __init__(
        self,
        device: Device,
        stream: Stream,
        first: Collection[Node],
        events: Mapping[Node, tuple[Event, Event]],
    ) -> None:
        self._device = device
        # What functions are captured on.
        self._stream = stream
        # Those that go before others, if the device knows of priorities.
        self._first = first if first and highest_priority(device) else ()
        # Of each node that is timed, what is recorded before and behind it.
        self._events = events

    def add(
        self,
        graph: Graph,
        nodes: Sequence[Node],
        edges: Sequence[Sequence[Node]],
        counts: list[int] | None = None,
    ) -> list[GraphNode]:
        """The nodes of a program; what comes behind all of them comes behind these. `counts` gets
        the number of the graph's nodes behind each."""
        counts = [] if counts is None else counts
        # Of each node, what comes last of it.
        ends: dict[Node, Sequence[GraphNode]] = {}
        for node, before in zip(nodes, edges, strict=True):
            after = [each for other in before for each in ends[other]]
            pair = self._events.get(node)
            if pair is not None:
                after = [graph.add_record(pair[0], after)]
            ends[node] = self._add(graph, node, after)
            if pair is not None:
                ends[node] = (graph.add_record(pair[1], ends[node]),)
            is_one = node.launch is not None and pair is None
            counts.append((counts[-1] if counts else 0) + 1 if is_one else len(graph))
        followed = {other for before in edges for other in before}
        return [each for node in nodes if node not in followed for each in ends[node]]

    def _add(self, graph: Graph, node: Node, after: Sequence[GraphNode]) -> Sequence[GraphNode]:
        """What comes last of a node, which is behind these."""
        if node.launch is not None:
            made = graph.add_kernel(node.launch, after)
            if node in self._first:
                graph.prioritise(made, _BEFORE_OTHERS)
            return (made,)
        if node.control is not None:
            return (self._add_block(graph, node, after),)
        try:
            # A function that enqueues nothing leaves what it comes after.
            return graph.add_captured(node.fn, self._stream, after)
        except CudasyncError as error:
            error.add_note(f"node {node.index} ({node.name}), recorded at {node.push_site}")
            raise

    def _add_block(self, graph: Graph, node: Node, after: Sequence[GraphNode]) -> GraphNode:
        """A block: a kernel that sets its condition, and the node that goes by it.

        A loop sets it anew at the end of each round.
        """
        control: Any = node.control
        # The default holds at the beginning of a launch; a block in a loop is begun more often.
        condition = graph.condition()
        first, again = _questions(control, condition, self._device)
        decided = graph.add_kernel(first, after)
        kind: Any = "if" if isinstance(control, Cond) else "while"
        made, bodies = graph.add_conditional(kind, condition, [decided], bodies=len(control.bodies))
        for body, nodes in zip(bodies, control.bodies, strict=True):
            ends = self.add(body, nodes, reduced(nodes))
            if again is not None:
                body.add_kernel(again, ends)
            elif not nodes:
                body.add_empty()
        return made


def _questions(control: Any, condition: Any, device: Device) -> tuple[Launch, Launch | None]:
    """What sets the condition before a block, and at the end of each round of a loop."""
    if isinstance(control, Repeat):
        assert control.counter is not None
        return begin(condition, control.counter, control.times), count_down(
            condition, control.counter
        )
    start, end = control.flag.region
    asked = ask(condition, start, end - start, device)
    return asked, asked if control.is_loop else None
