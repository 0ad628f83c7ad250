"""Floor 3. The nodes of a segment on a device, as one graph of the driver."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cudasync.driver import Stream
from cudasync.driver.device import highest_priority
from cudasync.driver.graph import Graph
from cudasync.driver.graph.condition_setters import ask, begin, count_down
from cudasync.errors import CudaError, CudasyncError
from cudasync.graph.control import Cond, Repeat
from cudasync.graph.hazards import reduced

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from cudasync.driver import Device, Event, Launch
    from cudasync.driver.graph import GraphExec, GraphNode
    from cudasync.graph.node import Node

# A priority in the driver's terms, where lower values go first.
_BEFORE_OTHERS = -1


class UncapturableError(Exception):
    """The driver refused a call of a node's function, which broke the capture. For `binding`."""

    def __init__(self, node: Node, cause: Exception) -> None:
        super().__init__(str(cause))
        self.node = node


def device_graph(
    nodes: Sequence[Node],
    edges: Sequence[Sequence[Node]],
    device: Device,
    ready: Callable[[Graph], GraphExec] = Graph.instantiate,
    events: Mapping[Node, tuple[Event, Event]] | None = None,
) -> tuple[GraphExec, tuple[int, ...]]:
    """An executable of `nodes`, each behind its predecessors in `edges` and no others. `ready`
    makes it from their graph.

    A launch is a node by itself, and a block a conditional node. Any other function is called once,
    with a stream that is captured; each launch of the graph does the work that it enqueued. Raises
    whatever the function raises, and UncapturableError where it broke the capture. Also returns,
    for each node, the number of nodes of the driver's graph up to and including it. With `events`,
    an event is recorded before each node, and one behind it that later nodes come after.
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
    """The nodes whose kernels have priority: those on the first stream, if there are several."""
    if not any(node.stream for node in nodes):
        return set()
    # A priority from the user holds for the whole segment.
    return {node for node in nodes if not node.stream and not node.priority}


class _Filling:
    """Graphs of the driver while they are filled: a segment's graph, and the bodies inside."""

    def __init__(
        self,
        device: Device,
        stream: Stream,
        first: Collection[Node],
        events: Mapping[Node, tuple[Event, Event]],
    ) -> None:
        self._device = device
        # Functions are captured on this stream.
        self._stream = stream
        # The nodes with priority, if the device supports priorities.
        self._first = first if first and highest_priority(device) else ()
        # For each timed node, the events before and behind it.
        self._events = events

    def add(
        self,
        graph: Graph,
        nodes: Sequence[Node],
        edges: Sequence[Sequence[Node]],
        counts: list[int] | None = None,
    ) -> dict[Node, Sequence[GraphNode]]:
        """Add the nodes of a program; returns the last graph nodes of each. `counts` gets the
        number of the graph's nodes behind each node."""
        counts = [] if counts is None else counts
        # For each node, its last graph nodes.
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
        return ends

    def _add(self, graph: Graph, node: Node, after: Sequence[GraphNode]) -> Sequence[GraphNode]:
        """Add a node behind these; returns its last graph nodes."""
        if node.launch is not None:
            made = graph.add_kernel(node.launch, after)
            if node in self._first:
                graph.prioritise(made, _BEFORE_OTHERS)
            return (made,)
        if node.control is not None:
            return (self._add_block(graph, node, after),)
        try:
            # A function that enqueues nothing returns its predecessors.
            return graph.add_captured(node.fn, self._stream, after)
        except Exception as error:
            if graph.was_broken and not (isinstance(error, CudaError) and error.sticky):
                raise UncapturableError(node, error) from error
            if isinstance(error, CudasyncError):
                error.add_note(f"node {node.index} ({node.name}), recorded at {node.push_site}")
            raise

    def _add_block(self, graph: Graph, node: Node, after: Sequence[GraphNode]) -> GraphNode:
        """Add a block: a kernel that sets the condition, and the conditional node.

        A loop sets the condition again in each round: behind what changes the flag, and beside
        everything else. The driver looks at the condition when the round is over.
        """
        control: Any = node.control
        # The default holds at the beginning of a launch only; a block in a loop begins more often.
        condition = graph.condition()
        first, again = _questions(control, condition, self._device)
        decided = graph.add_kernel(first, after)
        kind: Any = "if" if isinstance(control, Cond) else "while"
        made, bodies = graph.add_conditional(kind, condition, [decided], bodies=len(control.bodies))
        for body, nodes in zip(bodies, control.bodies, strict=True):
            ends = self.add(body, nodes, reduced(nodes))
            if again is not None:
                deciding = [node for node in nodes if _decides(node, control)]
                body.add_kernel(again, [each for node in deciding for each in ends[node]])
            elif not nodes:
                body.add_empty()
        return made


def _decides(node: Node, control: Any) -> bool:
    """True if `node` may change the flag of the loop that it is in."""
    if control.flag is None:
        return False
    (_, updated, written), _, _ = node.hazards
    start, end = control.flag.region
    return any(low < end and start < high for low, high, *_ in (*updated, *written))


def _questions(control: Any, condition: Any, device: Device) -> tuple[Launch, Launch | None]:
    """The kernels that set the condition before a block, and at the end of each round of a loop."""
    if isinstance(control, Repeat):
        assert control.counter is not None
        return begin(condition, control.counter, control.times), count_down(
            condition, control.counter
        )
    start, end = control.flag.region
    asked = ask(condition, start, end - start, device)
    return asked, asked if control.is_loop else None
