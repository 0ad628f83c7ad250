"""Floor 1, graphs. `Graph`: work of a device and its order, recorded and not yet launched.

The graph keeps the operands of its nodes alive, and so do its executable graphs.
"""

from __future__ import annotations

import operator
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, SupportsIndex

from cuda.bindings import driver

from cudasync.driver.graph import edges
from cudasync.driver.graph.capture_to_graph import CaptureToGraph
from cudasync.driver.graph.executable import GraphExec
from cudasync.driver.graph.node import GraphNode
from cudasync.driver.graph.work import (
    Allocate,
    Child,
    Conditional,
    Copy,
    Fill,
    Free,
    HostFunction,
    Kernel,
    Record,
    WaitFor,
    Work,
)
from cudasync.driver.ownership.handles import Owned, leave
from cudasync.driver.ownership.unpicklable import unpicklable
from cudasync.driver.result import check
from cudasync.driver.streams.current_streams import given_device

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from cudasync.driver.device import Device, DeviceLike
    from cudasync.driver.graph.work.conditions import Kind
    from cudasync.driver.kernels.launch import Launch
    from cudasync.driver.streams.event import Event
    from cudasync.driver.streams.stream import Stream

# The attribute of a kernel node; and the flag that lets an executable graph use it.
_PRIORITY = driver.CUkernelNodeAttrID.CU_LAUNCH_ATTRIBUTE_PRIORITY
_BY_NODE = driver.CUgraphInstantiate_flags.CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY.value
# Each launch begins with the default of a condition.
_ASSIGN = driver.CU_GRAPH_COND_ASSIGN_DEFAULT


class _Empty(Work):
    """Nothing. (cuGraphAddEmptyNode)"""

    kind = "empty"
    add = "cuGraphAddEmptyNode"

    def params(self, device: Device) -> tuple[Any, ...]:
        return ()


@unpicklable("make the graph there")
class Graph:
    """Work of one device and its order, launched as a whole.

    Nodes are added behind the nodes that they come `after`; nothing runs before
    `instantiate()` and a launch. Not for several threads at once.
    """

    def __init__(self, device: DeviceLike | None = None) -> None:
        self._device = given_device(device)
        context = self._device.context
        raw = context.allocate("cuGraphCreate", driver.cuGraphCreate, 0)
        self._owned = Owned(context, raw, driver.cuGraphDestroy, noun="graph", blocking=False)
        self._keeps: list[Any] = []
        # True once a kernel node has a priority.
        self._has_priorities = False
        self.captures = CaptureToGraph(self._owned)

    @property
    def device(self) -> Device:
        return self._device

    @property
    def handle(self) -> int:
        """The CUgraph as an integer. Raises ClosedError once closed."""
        return int(self._owned.get())

    @property
    def is_closed(self) -> bool:
        return self._owned.is_closed

    def get(self) -> Any:
        """The driver's handle, for a call."""
        return self._owned.get()

    @property
    def nodes(self) -> list[GraphNode]:
        """All nodes, in an unspecified order. (cuGraphGetNodes)"""
        return self._nodes_of(driver.cuGraphGetNodes)

    @property
    def roots(self) -> list[GraphNode]:
        """The nodes without predecessors. (cuGraphGetRootNodes)"""
        return self._nodes_of(driver.cuGraphGetRootNodes)

    @property
    def edges(self) -> list[tuple[GraphNode, GraphNode]]:
        """All edges, each from the first node to the later one. (cuGraphGetEdges)"""
        found = edges.all_of(self._owned.ready())
        return [(GraphNode(self, before), GraphNode(self, after)) for before, after in found]

    def __len__(self) -> int:
        return int(check(driver.cuGraphGetNodes(self._owned.ready(), 0), "cuGraphGetNodes")[1])

    def add(self, work: Work, after: Sequence[GraphNode] = ()) -> GraphNode:
        """A node that does `work`, behind the nodes in `after`. (cuGraphAdd...Node)

        Raises ValueError for work of another device, or for another graph's nodes in `after`;
        ClosedError for a closed object.
        """
        raw = self._owned.ready()
        before = self._raw_of(after)
        params = work.params(self._device)
        if work.add == "cuGraphAddNode":
            answer = edges.add_node(raw, before, len(before), *params)
        else:
            answer = getattr(driver, work.add)(raw, before, len(before), *params)
        made = GraphNode(self, check(answer, work.add))
        self._keeps.append(work.keeps)
        return made

    def add_kernel(self, launch: Launch, after: Sequence[GraphNode] = ()) -> GraphNode:
        """A node that launches a kernel with its present arguments.

        Raises ValueError for a kernel of another device. (cuGraphAddKernelNode)
        """
        return self.add(Kernel(launch), after)

    def add_copy(
        self, target: object, source: object, after: Sequence[GraphNode] = (), **how: Any
    ) -> GraphNode:
        """A node that copies, with the operands of `memcpy_async`; see `Copy` for `size_bytes` and
        `rows`. Pageable memory is read when the graph runs. (cuGraphAddMemcpyNode)"""
        return self.add(Copy(target, source, **how), after)

    def add_fill(
        self, target: object, value: Any, after: Sequence[GraphNode] = (), **how: Any
    ) -> GraphNode:
        """A node that fills, with the arguments of `memset_async`. (cuGraphAddMemsetNode)"""
        return self.add(Fill(target, value, **how), after)

    def add_function(
        self, address: int, data: int = 0, after: Sequence[GraphNode] = (), **how: Any
    ) -> GraphNode:
        """A node that calls a C function on a thread of the driver: see `HostFunction`.

        (cuGraphAddHostNode)
        """
        return self.add(HostFunction(address, data, **how), after)

    def add_child(self, graph: Graph, after: Sequence[GraphNode] = ()) -> GraphNode:
        """A node that does the present work of `graph`. (cuGraphAddChildGraphNode)"""
        return self.add(Child(graph), after)

    def add_record(self, event: Event, after: Sequence[GraphNode] = ()) -> GraphNode:
        """A node that records an event. (cuGraphAddEventRecordNode)"""
        return self.add(Record(event), after)

    def add_wait(self, event: Event, after: Sequence[GraphNode] = ()) -> GraphNode:
        """A node that waits for an event. (cuGraphAddEventWaitNode)"""
        return self.add(WaitFor(event), after)

    def add_allocation(
        self, size_bytes: int, after: Sequence[GraphNode] = ()
    ) -> tuple[GraphNode, int]:
        """A node that allocates memory, and the address that it will have.

        (cuGraphAddMemAllocNode)
        """
        work = Allocate(size_bytes)
        return self.add(work, after), work.ptr

    def add_free(self, ptr: int, after: Sequence[GraphNode] = ()) -> GraphNode:
        """A node that frees memory that a graph allocated. (cuGraphAddMemFreeNode)"""
        return self.add(Free(ptr), after)

    def condition(self, default: int = 0) -> Any:
        """A number for conditional nodes that kernels of a launch can set; each launch begins with
        `default`. (cuGraphConditionalHandleCreate)"""
        made = driver.cuGraphConditionalHandleCreate(
            self._owned.ready(), self._device.context.handle(), default, _ASSIGN
        )
        return check(made, "cuGraphConditionalHandleCreate")

    def add_conditional(
        self, kind: Kind, condition: Any, after: Sequence[GraphNode] = (), *, bodies: int = 1
    ) -> tuple[GraphNode, list[Graph]]:
        """A node that runs a graph "if" a condition is not 0 (a second body: if it is 0), or
        "while" it is not 0. Also returns the bodies, empty graphs that belong to this graph.
        (cuGraphAddNode)"""
        work = Conditional(kind, condition, bodies)
        node = self.add(work, after)
        return node, [self._part(each) for each in work.bodies]

    def add_empty(self, after: Sequence[GraphNode] = ()) -> GraphNode:
        """A node that only orders other nodes. (cuGraphAddEmptyNode)"""
        return self.add(_Empty(), after)

    def order(self, before: GraphNode, after: GraphNode) -> None:
        """Add an edge. Raises CudaError if it exists; `instantiate` detects a cycle.

        (cuGraphAddDependencies)
        """
        one, other = self._raw_of([before, after])
        edges.add(self._owned.ready(), [one], [other])

    def unorder(self, before: GraphNode, after: GraphNode) -> None:
        """Remove an edge. Raises CudaError if there is none. (cuGraphRemoveDependencies)"""
        one, other = self._raw_of([before, after])
        edges.remove(self._owned.ready(), [one], [other])

    def prioritise(self, node: GraphNode, priority: int) -> None:
        """Let a kernel node go before ready nodes with a larger number: 0 is usual, and the range
        is that of the device's streams. Executable graphs then use the nodes' priorities, whatever
        the stream's priority.

        Raises CudaError for a node that is no kernel node. (cuGraphKernelNodeSetAttribute)
        """
        (raw,) = self._raw_of([node])
        value = driver.CUkernelNodeAttrValue()
        value.priority = priority
        check(
            driver.cuGraphKernelNodeSetAttribute(raw, _PRIORITY, value),
            "cuGraphKernelNodeSetAttribute",
        )
        self._has_priorities = True

    def remove(self, node: GraphNode) -> None:
        """Remove a node and its edges. Executable graphs keep it. (cuGraphDestroyNode)"""
        (raw,) = self._raw_of([node])
        check(driver.cuGraphDestroyNode(raw), "cuGraphDestroyNode")

    def clone(self) -> Graph:
        """A graph with the same nodes, which can be changed independently. (cuGraphClone)"""
        made = self._device.context.allocate("cuGraphClone", driver.cuGraphClone, self.whole())
        clone = Graph._of(self._device, made, self._keeps, is_ours=True)
        clone._has_priorities = self._has_priorities
        return clone

    @classmethod
    def from_handle(cls, handle: SupportsIndex, device: DeviceLike | None = None) -> Graph:
        """Another library's graph, by its CUgraph as an integer. Its owner still destroys it, and
        keeps the operands of its nodes alive; `close` only ends the use here."""
        return cls._of(
            given_device(device), driver.CUgraph(operator.index(handle)), (), is_ours=False
        )

    def to_dot(self, *, verbose: bool = False) -> str:
        """The driver's description of the graph for Graphviz. (cuGraphDebugDotPrint)"""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "graph.dot"
            raw = self._owned.ready()
            check(
                driver.cuGraphDebugDotPrint(raw, str(path).encode(), int(verbose)),
                "cuGraphDebugDotPrint",
            )
            return path.read_text(encoding="utf-8")

    def whole(self) -> Any:
        """The driver's handle. Raises ValueError after a capture that failed."""
        return self.captures.whole()

    def kept(self) -> tuple[Any, ...]:
        """The objects that must live as long as a copy of the graph."""
        return tuple(self._keeps)

    def add_captured(
        self, enqueue: Callable[[Stream], object], stream: Stream, after: Sequence[GraphNode] = ()
    ) -> list[GraphNode]:
        """Call `enqueue(stream)` now with `stream` captured, and add the nodes that it makes.

        Returns the nodes without successors among these: later nodes come after them. `enqueue` and
        its operands live as long as the graph and its executable graphs. If `enqueue` raises, its
        nodes stay in the graph, and a later `instantiate()` is a ValueError. If a call in it breaks
        the capture (a wait for the stream, a launch of an executable graph), the driver destroys
        the graph: `was_broken` is True, and the graph is closed. A note of the error says so.
        (cuStreamBeginCaptureToGraph, cuStreamEndCapture)
        """
        self._owned.ready()
        before = self._raw_of(after)
        self._keeps.append(enqueue)
        return [GraphNode(self, each) for each in self.captures.add(enqueue, stream, before)]

    @property
    def was_broken(self) -> bool:
        """True once a call that the driver refused broke a capture. The graph is closed then."""
        return self.captures.was_broken

    def instantiate(self) -> GraphExec:
        """An executable graph of the present nodes. (cuGraphInstantiate)

        Raises ValueError after a failed capture, since its nodes are incomplete.
        """
        raw = self._device.context.allocate(
            "cuGraphInstantiate",
            driver.cuGraphInstantiate,
            self.whole(),
            _BY_NODE if self._has_priorities else 0,
        )
        return GraphExec(self._device, raw, self.kept())

    def close(self) -> None:
        """Destroy the graph and its nodes; its executable graphs stay. (cuGraphDestroy)"""
        self._owned.close()
        self._keeps.clear()

    @classmethod
    def _of(cls, device: Device, raw: Any, keeps: Iterable[Any], *, is_ours: bool) -> Graph:
        made = cls.__new__(cls)
        made._device = device
        # `Owned` takes the life of the context that this thread has entered.
        device.context.enter()
        destroy = driver.cuGraphDestroy if is_ours else leave
        made._owned = Owned(device.context, raw, destroy, noun="graph", blocking=False)
        made._keeps = list(keeps)
        made._has_priorities = False
        made.captures = CaptureToGraph(made._owned)
        return made

    def _part(self, raw: Any) -> Graph:
        """A body of a node of this graph; its operands live as long as this graph."""
        made = Graph._of(self._device, raw, (), is_ours=False)
        made._keeps = self._keeps
        return made

    def _nodes_of(self, call: Callable[..., Any]) -> list[GraphNode]:
        raw = self._owned.ready()
        _, count = check(call(raw, 0), call.__name__)
        if not count:
            return []
        found, _ = check(call(raw, count), call.__name__)
        return [GraphNode(self, each) for each in found]

    def _raw_of(self, nodes: Sequence[GraphNode]) -> list[Any]:
        """The nodes' handles. Raises ValueError for a node of another graph."""
        for each in nodes:
            if each.graph is not self:
                raise ValueError("a node can only depend on nodes of its own graph")
        return [each.raw for each in nodes]

    def __repr__(self) -> str:
        if self.is_closed:
            return "<Graph closed>"
        return f"<Graph of {len(self)} nodes on {self._device!r}>"
