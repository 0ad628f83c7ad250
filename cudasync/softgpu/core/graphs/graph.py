"""Cellar. Graphs: nodes, and edges between them.

True between calls:
- an edge joins two nodes of the same graph, and both nodes store it;
- `nodes` is in order of age, and a node's number is never reused in its graph.

A program may build cycles; `order` finds them.
"""

from __future__ import annotations

from collections import Counter
from heapq import heappop, heappush
from itertools import count
from typing import TYPE_CHECKING, ClassVar, Final

from cudasync.softgpu.core.driver_types.handles import new_handle
from cudasync.softgpu.core.driver_types.result_codes import INVALID_VALUE, DriverFailure
from cudasync.softgpu.core.graphs.user_objects import hold

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import TypeAlias

    from cudasync.softgpu.core.graphs.conditional_nodes import Condition
    from cudasync.softgpu.core.graphs.node_parameters import Work
    from cudasync.softgpu.core.graphs.user_objects import UserObject

    Edge: TypeAlias = tuple[int, int, int]
    """From port, to port, type: CUgraphEdgeData."""

PLAIN: Final = (0, 0, 0)
"""The edge data of an edge given without data."""

_identities = count(1)


class Node:
    """One node."""

    __slots__ = (
        "dependencies",
        "dependents",
        "graph",
        "handle",
        "is_enabled",
        "kept",
        "made_at",
        "number",
        "work",
    )

    def __init__(self, graph: Graph, number: int, work: Work) -> None:
        self.graph = graph
        self.handle = new_handle()
        self.number = number
        self.work = work
        self.dependencies: dict[Node, Edge] = {}
        self.dependents: dict[Node, Edge] = {}
        # Used only in executables.
        self.is_enabled = True
        # Keeps memory alive to which the program has a pointer.
        self.kept: object = None
        # The line of the program that made the node, if `Graph.noted_by` is set.
        self.made_at = ""


class Graph:
    """Nodes and edges. A graph nested in a node belongs to the node, its `owner`."""

    noted_by: ClassVar[Callable[[], str] | None] = None
    """During a check: returns the line of the program that makes a node."""

    def __init__(self) -> None:
        self.handle = new_handle()
        self.identity = next(_identities)
        self.owner: Node | None = None
        self.nodes: dict[Node, None] = {}
        # The conditions for which conditional nodes can be made.
        self.conditions: list[Condition] = []
        # In a clone: the copy of each original node, by the original's handle.
        self.twins: dict[int, Node] = {}
        # The number of references to each user object. A copy's are not counted at first; see
        # `user_objects.hold`.
        self.user_objects: Counter[UserObject] = Counter()
        self.is_holding = True
        self._numbers = count()

    def add(self, work: Work, dependencies: Iterable[tuple[Node, Edge]] = ()) -> Node:
        """A new node with the given dependencies."""
        node = Node(self, next(self._numbers), work)
        if Graph.noted_by is not None:
            node.made_at = Graph.noted_by()
        before = list(dependencies)
        for other, edge in before:
            self._check(other, node, edge)
            if other in node.dependencies:
                raise DriverFailure(INVALID_VALUE, "a dependency is given twice")
            node.dependencies[other] = edge
        for other, edge in before:
            other.dependents[node] = edge
        self.nodes[node] = None
        for inside in work.graphs:
            inside.owner = node
            hold(inside)
        return node

    def connect(self, source: Node, target: Node, edge: Edge = PLAIN) -> None:
        """Let `target` depend on `source`."""
        self._check(source, target, edge)
        if target.graph is not self:
            raise DriverFailure(INVALID_VALUE, "the node belongs to another graph")
        if source is target:
            raise DriverFailure(INVALID_VALUE, "a node cannot depend on itself")
        if source in target.dependencies:
            raise DriverFailure(INVALID_VALUE, "the graph has this dependency already")
        source.dependents[target] = target.dependencies[source] = edge

    def _check(self, source: Node, target: Node, edge: Edge) -> None:
        if source.graph is not self or source not in self.nodes:
            raise DriverFailure(INVALID_VALUE, "the dependency belongs to another graph")
        from_port, to_port, kind = edge
        kernels = source.work.kind == target.work.kind == 0
        if kind > 1 or from_port > 2 or to_port or ((kind or from_port) and not kernels):
            raise DriverFailure(
                INVALID_VALUE, f"nodes of these types cannot have an edge with this data: {edge}"
            )

    def disconnect(self, source: Node, target: Node, edge: Edge = PLAIN) -> None:
        """Remove an edge; INVALID_VALUE if there is none."""
        if target.graph is not self or target.dependencies.get(source) != edge:
            raise DriverFailure(INVALID_VALUE, "the graph has no such dependency")
        del target.dependencies[source]
        del source.dependents[target]

    def remove(self, node: Node) -> None:
        """Remove a node and its edges."""
        for other in node.dependencies:
            del other.dependents[node]
        for other in node.dependents:
            del other.dependencies[node]
        del self.nodes[node]

    def edges(self) -> list[tuple[Node, Node, Edge]]:
        """All edges, by the age of their source nodes."""
        return [(n, to, edge) for n in self.nodes for to, edge in n.dependents.items()]

    def order(self) -> list[Node]:
        """All nodes in topological order, older nodes first; INVALID_VALUE if cyclic."""
        missing = {node: len(node.dependencies) for node in self.nodes}
        free = [(node.number, node) for node in self.nodes if not node.dependencies]
        found: list[Node] = []
        while free:
            node = heappop(free)[1]
            found.append(node)
            for dependent in node.dependents:
                missing[dependent] -= 1
                if not missing[dependent]:
                    heappush(free, (dependent.number, dependent))
        if len(found) < len(self.nodes):
            raise DriverFailure(INVALID_VALUE, "the graph has a cycle")
        return found

    def copy(self) -> tuple[Graph, dict[int, Node]]:
        """A deep copy, and a map from the handles of all original nodes to their copies."""
        made: dict[int, Node] = {}

        def deep(graph: Graph) -> Graph:
            twin = Graph()
            twin.twins = made
            twin.conditions = list(graph.conditions)
            twin.user_objects, twin.is_holding = graph.user_objects.copy(), False
            for node in graph.nodes:
                work = node.work.copied(deep)
                other = made[node.handle] = Node(twin, next(twin._numbers), work)
                other.is_enabled, other.made_at = node.is_enabled, node.made_at
                twin.nodes[other] = None
                for inside in work.graphs:
                    inside.owner = other
            for node in graph.nodes:
                other = made[node.handle]
                other.dependencies = {made[n.handle]: e for n, e in node.dependencies.items()}
                other.dependents = {made[n.handle]: e for n, e in node.dependents.items()}
            return twin

        return deep(self), made

    def all_conditions(self) -> list[Condition]:
        """Its conditions, with those of nested graphs."""
        inside = (graph for node in self.nodes for graph in node.work.graphs)
        return [*self.conditions, *(c for graph in inside for c in graph.all_conditions())]

    def all_graphs(self) -> list[Graph]:
        """Itself and all nested graphs."""
        inside = (graph for node in self.nodes for graph in node.work.graphs)
        return [self, *(each for graph in inside for each in graph.all_graphs())]

    def everything(self) -> list[Node]:
        """All nodes, with those of nested graphs."""
        found: list[Node] = []
        for node in self.nodes:
            found.append(node)
            for inside in node.work.graphs:
                found += inside.everything()
        return found
