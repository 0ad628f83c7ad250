"""Floor 1, graphs. A node of a graph: it lives as long as the graph does, and belongs to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cuda.bindings import driver

from cudasync.driver.graph import edges
from cudasync.driver.ownership.unpicklable import unpicklable
from cudasync.driver.result import check

if TYPE_CHECKING:
    from cudasync.driver.graph.graph import Graph

_PRIORITY = driver.CUkernelNodeAttrID.CU_LAUNCH_ATTRIBUTE_PRIORITY
_PREFIX = "CU_GRAPH_NODE_TYPE_"


@unpicklable("make the graph there")
class GraphNode:
    """A node of a graph: made by the graph's `add_...` methods."""

    __slots__ = ("graph", "raw")

    def __init__(self, graph: Graph, raw: Any) -> None:
        self.graph = graph
        # The driver's handle, valid as long as the graph is.
        self.raw = raw

    @property
    def kind(self) -> str:
        """The node's kind: "kernel", "memcpy", "memset", "empty" ... (cuGraphNodeGetType)"""
        self.graph.get()
        found = check(driver.cuGraphNodeGetType(self.raw), "cuGraphNodeGetType")
        return str(found.name).removeprefix(_PREFIX).lower()

    @property
    def handle(self) -> int:
        """The CUgraphNode as an integer. Raises ClosedError once the graph is closed."""
        self.graph.get()
        return int(self.raw)

    @property
    def priority(self) -> int:
        """The priority of a kernel node: smaller goes first. (cuGraphKernelNodeGetAttribute)"""
        self.graph.get()
        answer = driver.cuGraphKernelNodeGetAttribute(self.raw, _PRIORITY)
        return int(check(answer, "cuGraphKernelNodeGetAttribute").priority)

    @property
    def predecessors(self) -> list[GraphNode]:
        """The direct predecessors. (cuGraphNodeGetDependencies)"""
        self.graph.get()
        return [GraphNode(self.graph, each) for each in edges.before(self.raw)]

    @property
    def successors(self) -> list[GraphNode]:
        """The direct successors. (cuGraphNodeGetDependentNodes)"""
        self.graph.get()
        return [GraphNode(self.graph, each) for each in edges.behind(self.raw)]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, GraphNode):
            return NotImplemented
        return self.graph is other.graph and int(self.raw) == int(other.raw)

    def __hash__(self) -> int:
        return hash(int(self.raw))

    def __repr__(self) -> str:
        if self.graph.is_closed:
            return "<GraphNode of a closed graph>"
        return f"<GraphNode {self.kind}>"
