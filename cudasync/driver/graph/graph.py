"""Floor 1, graphs. A graph: work of a device and its order, written down and not begun.

What a node refers to is kept alive by the graph, and by what is instantiated of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cuda.bindings import driver

from cudasync.driver.current import given_device
from cudasync.driver.graph.executable import GraphExec
from cudasync.driver.graph.node import GraphNode
from cudasync.driver.owned import Owned
from cudasync.driver.result import check, failure
from cudasync.driver.unpicklable import unpicklable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cudasync.driver.device import Device, DeviceLike
    from cudasync.driver.launch import Launch
    from cudasync.driver.stream import Stream

_RELAXED = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
# Where the nodes stand among the answers of cuStreamGetCaptureInfo that the next one comes after.
_LEAVES = 4


@unpicklable("make the graph there")
class Graph:
    """Work of one device and the order that it needs, to be launched as a whole.

    Nodes are added behind the nodes that they come `after`; nothing runs before
    `instantiate()` and a launch. Not for several threads at once.
    """

    def __init__(self, device: DeviceLike | None = None) -> None:
        self._device = given_device(device)
        context = self._device.context
        raw = context.allocate("cuGraphCreate", driver.cuGraphCreate, 0)
        self._owned = Owned(context, raw, driver.cuGraphDestroy, noun="graph", blocking=False)
        self._keeps: list[Any] = []
        # False from the beginning of a capture until it has ended well.
        self._is_whole = True

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
        """All nodes, in no order that means anything. (cuGraphGetNodes)"""
        raw = self._owned.ready()
        _, count = check(driver.cuGraphGetNodes(raw, 0), "cuGraphGetNodes")
        if not count:
            return []
        found, _ = check(driver.cuGraphGetNodes(raw, count), "cuGraphGetNodes")
        return [GraphNode(self, each) for each in found]

    def __len__(self) -> int:
        return int(check(driver.cuGraphGetNodes(self._owned.ready(), 0), "cuGraphGetNodes")[1])

    def add_kernel(self, launch: Launch, after: Sequence[GraphNode] = ()) -> GraphNode:
        """A node that launches a kernel with the arguments as they are now.

        Raises ValueError for a kernel of another device. (cuGraphAddKernelNode)
        """
        kernel = launch.kernel
        if kernel.device is not self._device:
            raise ValueError(
                f"kernel {kernel.name} is loaded on {kernel.device!r}, the graph is of "
                f"{self._device!r}"
            )
        kernel.get()
        params = driver.CUDA_KERNEL_NODE_PARAMS()
        params.func = kernel.function
        params.gridDimX, params.gridDimY, params.gridDimZ, *rest = launch.shape
        params.blockDimX, params.blockDimY, params.blockDimZ, params.sharedMemBytes = rest
        params.kernelParams = launch.block.address
        return self._added(driver.cuGraphAddKernelNode, after, params, keeps=launch)

    def add_empty(self, after: Sequence[GraphNode] = ()) -> GraphNode:
        """A node that does nothing but come after others. (cuGraphAddEmptyNode)"""
        return self._added(driver.cuGraphAddEmptyNode, after, keeps=None)

    def add_captured(
        self, enqueue: Callable[[Stream], object], stream: Stream, after: Sequence[GraphNode] = ()
    ) -> list[GraphNode]:
        """The nodes that `enqueue(stream)` makes when it is called now, with `stream` captured.

        Returns those that nothing of them follows: what comes after all of it comes after these.
        What `enqueue` refers to lives as long as the graph, and what is instantiated of it. If it
        raises, what it made until then stays in the graph, which is not to be instantiated: a
        later `instantiate()` is a ValueError. (cuStreamBeginCaptureToGraph, cuStreamEndCapture)
        """
        graph, raw = self._owned.ready(), stream.enter()
        before = self._raw_of(after)
        self._keeps.append(enqueue)
        self._is_whole = False
        # Plain edges: some bindings take no None for as many of these as there are nodes.
        edges = [driver.CUgraphEdgeData() for _ in before]
        check(
            driver.cuStreamBeginCaptureToGraph(raw, graph, before, edges, len(before), _RELAXED),
            "cuStreamBeginCaptureToGraph",
        )
        try:
            enqueue(stream)
            answer = driver.cuStreamGetCaptureInfo(raw)
            if answer[0]:
                raise failure(answer[0], "cuStreamGetCaptureInfo")
        finally:
            ended = driver.cuStreamEndCapture(raw)
        check(ended, "cuStreamEndCapture")
        self._is_whole = True
        return [GraphNode(self, each) for each in answer[_LEAVES]]

    def instantiate(self) -> GraphExec:
        """What can be launched of the graph as it is now. (cuGraphInstantiate)

        Raises ValueError after a capture that failed: its nodes are only some of what was meant.
        """
        if not self._is_whole:
            raise ValueError("a capture into the graph failed half-way: build a new graph")
        raw = self._device.context.allocate(
            "cuGraphInstantiate", driver.cuGraphInstantiate, self._owned.get(), 0
        )
        return GraphExec(self._device, raw, tuple(self._keeps))

    def close(self) -> None:
        """Destroy the graph and its nodes; what was instantiated of it stays. (cuGraphDestroy)"""
        self._owned.close()
        self._keeps.clear()

    def _added(
        self, add: Callable[..., Any], after: Sequence[GraphNode], *params: Any, keeps: object
    ) -> GraphNode:
        raw = self._owned.ready()
        before = self._raw_of(after)
        made = check(add(raw, before, len(before), *params), add.__name__)
        self._keeps.append(keeps)
        return GraphNode(self, made)

    def _raw_of(self, nodes: Sequence[GraphNode]) -> list[Any]:
        """Their handles. Raises ValueError for a node of another graph."""
        for each in nodes:
            if each.graph is not self:
                raise ValueError("a node comes after nodes of its own graph only")
        return [each.raw for each in nodes]

    def __repr__(self) -> str:
        if self.is_closed:
            return "<Graph closed>"
        return f"<Graph of {len(self)} nodes on {self._device!r}>"
