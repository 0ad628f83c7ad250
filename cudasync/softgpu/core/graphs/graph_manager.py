"""Cellar. Operations on graphs: the verbs behind the driver's calls.

Graphs and nodes have handles here. Graphs and nodes of executables have none
(`executable_manager`).

`lock` lets one thread at a time read or change the structure of graphs. It is taken before the
executor's lock, never after.
"""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

from cudasync.locks import Lock
from cudasync.softgpu.core.driver_types.handles import Handles
from cudasync.softgpu.core.driver_types.result_codes import INVALID_VALUE, DriverFailure
from cudasync.softgpu.core.graphs.conditional_nodes import conditions_of
from cudasync.softgpu.core.graphs.graph import Graph, Node
from cudasync.softgpu.core.graphs.graph_resources import Resources
from cudasync.softgpu.core.graphs.graph_update import with_attributes_of
from cudasync.softgpu.core.graphs.memory_nodes import has_memory_nodes
from cudasync.softgpu.core.graphs.node_parameters import ChildWork, NodeType
from cudasync.softgpu.core.graphs.stream_capture import Capture
from cudasync.softgpu.core.graphs.user_objects import UserObjects, hold, release_all, taken_from

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from cudasync.softgpu.core.graphs.graph import Edge
    from cudasync.softgpu.core.graphs.node_parameters import Work
    from cudasync.softgpu.core.machine import Machine
    from cudasync.softgpu.core.streams.streams import Stream

P = ParamSpec("P")
R = TypeVar("R")

_FIXED = frozenset({NodeType.MEM_ALLOC, NodeType.MEM_FREE, NodeType.CONDITIONAL})


def _alone(
    verb: Callable[Concatenate[GraphManager, P], R],
) -> Callable[Concatenate[GraphManager, P], R]:
    """Run a verb under the lock of the graphs."""

    @wraps(verb)
    def guarded(self: GraphManager, /, *arguments: P.args, **named: P.kwargs) -> R:
        with self.lock:
            return verb(self, *arguments, **named)

    return guarded


class GraphManager:
    """All graphs of a machine."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._executor = machine.executor
        # A finaliser's requests are deferred.
        self.lock = Lock()
        self.resources = Resources(machine)
        self._graphs = self.made = Handles[Graph]("graph", code=INVALID_VALUE)
        self._nodes: Handles[Node] = Handles("graph node", code=INVALID_VALUE)
        self.user_objects = UserObjects()

    # Finding

    def get(self, handle: int) -> Graph:
        """The graph of a handle, also a nested one."""
        return self._graphs.get(handle)

    def node(self, handle: int) -> Node:
        """The node of a handle."""
        return self._nodes.get(handle)

    # Graphs

    def create(self, flags: int) -> Graph:
        """An empty graph."""
        if flags:
            raise DriverFailure(INVALID_VALUE, "the flags must be 0")
        return self.adopt(Graph())

    @_alone
    def adopt(self, graph: Graph) -> Graph:
        """Register the handles of a graph, its nodes and nested graphs."""
        self._graphs.add(graph.handle, graph)
        # A copy, because another thread may capture into the graph.
        for node in list(graph.nodes):
            self._adopt_node(node)
        return graph

    def _adopt_node(self, node: Node) -> None:
        self._nodes.add(node.handle, node)
        for inside in node.work.graphs:
            self.adopt(inside)

    def destroy(self, handle: int) -> None:
        """End a graph and its nodes; its executables stay."""
        if self._executor.deferred.put_off(lambda: self.destroy(handle)):
            return
        with self.lock:
            graph = self.get(handle)
            if graph.owner is not None:
                raise DriverFailure(INVALID_VALUE, "the graph belongs to a node")
            self._machine.captures.refuse_graph(graph, "destroyed")
            self._forget(graph)
            self.resources.let_go(graph)
        release_all(taken_from(graph))

    def _forget(self, graph: Graph) -> None:
        self._graphs.discard(graph.handle)
        for node in list(graph.nodes):
            self._forget_node(node)

    def _forget_node(self, node: Node) -> None:
        self._nodes.discard(node.handle)
        for inside in node.work.graphs:
            self._forget(inside)

    @_alone
    def clone(self, handle: int) -> Graph:
        """A copy of a graph that maps the original's nodes to its own."""
        original = self.get(handle)
        _refuse_memory_nodes(original, "cloned")
        twin, _ = original.copy()
        for condition in twin.all_conditions():
            condition.hold()
        hold(twin)
        return self.adopt(twin)

    def find_in_clone(self, node: Node, clone: Graph) -> Node:
        """The node of a clone that was made from `node`."""
        found = clone.twins.get(node.handle)
        if found is None or found not in found.graph.nodes:
            raise DriverFailure(
                INVALID_VALUE,
                "the graph is not a clone of the node's graph, or the node's clone was removed",
            )
        return found

    # Nodes and edges

    @_alone
    def add(self, graph: Graph, work: Work, dependencies: Iterable[tuple[Node, Edge]]) -> Node:
        """A new node."""
        node = graph.add(work, dependencies)
        self._adopt_node(node)
        return node

    @_alone
    def child(self, graph: Graph) -> ChildWork:
        """The work of a node that is a copy of a graph."""
        _refuse_memory_nodes(graph, "a child that is a copy")
        if conditions_of(graph):
            raise DriverFailure(
                INVALID_VALUE,
                "a graph with conditional nodes cannot be copied into a child graph node",
            )
        return ChildWork(graph.copy()[0])

    def moved_child(self, graph: Graph) -> ChildWork:
        """The work of a node that takes over a graph."""
        if graph.owner is not None:
            raise DriverFailure(INVALID_VALUE, "the graph belongs to a node")
        return ChildWork(graph)

    def remove(self, node: Node) -> None:
        """End a node, its edges and its nested graphs."""
        with self.lock:
            _refuse_memory_nodes(node.graph, "taken apart")
            self._machine.captures.refuse_graph(node.graph, "taken apart")
            node.graph.remove(node)
            self._forget_node(node)
            self.resources.let_go_of_node(node)
        for inside in node.work.graphs:
            release_all(taken_from(inside))

    @_alone
    def connect(self, graph: Graph, source: Node, target: Node, edge: Edge) -> None:
        """A new edge."""
        graph.connect(source, target, edge)

    @_alone
    def disconnect(self, graph: Graph, source: Node, target: Node, edge: Edge) -> None:
        """Remove an edge."""
        _refuse_memory_nodes(graph, "taken apart")
        graph.disconnect(source, target, edge)

    def check_settable(self, node: Node) -> None:
        """INVALID_VALUE for a node with fixed parameters."""
        if node.work.kind in _FIXED:
            raise DriverFailure(INVALID_VALUE, f"a {node.work.kind.name} node cannot be changed")

    def set_work(self, node: Node, work: Work) -> None:
        """Set a node's parameters; its type cannot change."""
        with self.lock:
            if work.kind != node.work.kind:
                raise DriverFailure(
                    INVALID_VALUE,
                    f"the node is a {node.work.kind.name} node, not a {work.kind.name} node",
                )
            before = node.work.graphs
            for inside in before:
                self._forget(inside)
            node.work = work = with_attributes_of(node.work, work)
            node.kept = None
            for inside in work.graphs:
                inside.owner = node
                hold(inside)
                self.adopt(inside)
        for inside in before:
            release_all(taken_from(inside))

    # Captures

    def begin_capture_to(
        self, stream: Stream, mode: int, graph: Graph, tips: Iterable[tuple[Node, Edge]]
    ) -> None:
        """Capture into an existing graph."""
        before = dict(tips)
        if any(node.graph is not graph for node in before):
            raise DriverFailure(INVALID_VALUE, "a dependency belongs to another graph")
        self._machine.captures.begin_to(stream, mode, graph, before)

    def end_capture(self, stream: Stream) -> Graph:
        """End a capture and return its graph. A capture that fails takes its graph along, also a
        graph that existed before, as drivers do; not the body of a node."""
        capture = stream.capture
        try:
            return self.adopt(self._machine.captures.end(stream))
        except DriverFailure:
            if isinstance(capture, Capture) and capture.is_over and capture.graph.owner is None:
                self._forget(capture.graph)
                self.resources.let_go(capture.graph)
                release_all(taken_from(capture.graph))
            raise

    def adopt_captured(self, capture: Capture) -> Graph:
        """Register the handles of a capture's graph so far, for a query of the program."""
        return self.adopt(capture.graph)


def _refuse_memory_nodes(graph: Graph, what: str) -> None:
    if has_memory_nodes(graph):
        raise DriverFailure(INVALID_VALUE, f"a graph with memory nodes cannot be {what}")
