"""Floor 1, graphs. `GraphExec`: an executable graph, instantiated from a graph."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, SupportsIndex

from cuda.bindings import driver

from cudasync.driver.context import here
from cudasync.driver.graph.update import update
from cudasync.driver.graph.work.kernels import Kernel
from cudasync.driver.ownership.handles import Owned, leave
from cudasync.driver.ownership.unpicklable import unpicklable
from cudasync.driver.result import check, failure
from cudasync.driver.streams.chosen_stream import as_stream
from cudasync.driver.streams.current_streams import given_device
from cudasync.driver.streams.stream import Stream

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

    from cudasync.driver.device import Device, DeviceLike
    from cudasync.driver.graph.graph import Graph
    from cudasync.driver.graph.node import GraphNode
    from cudasync.driver.graph.work import Work
    from cudasync.driver.kernels.launch import Launch
    from cudasync.driver.streams.event import Event
    from cudasync.driver.streams.stream import StreamLike


@unpicklable("make the graph there")
class GraphExec:
    """A graph that is ready to be launched, made by `Graph.instantiate()`.

    It keeps the operands of its nodes alive. Its launches run one after the other.
    """

    __slots__ = ("__weakref__", "_device", "_keeps", "_owned")

    def __init__(self, device: Device, raw: Any, keeps: tuple[Any, ...]) -> None:
        self._device = device
        self._owned = Owned(
            device.context, raw, driver.cuGraphExecDestroy, noun="executable graph", blocking=False
        )
        self._keeps = keeps

    @property
    def device(self) -> Device:
        return self._device

    @property
    def handle(self) -> int:
        """The CUgraphExec as an integer. Raises ClosedError once closed."""
        return int(self._owned.get())

    @property
    def is_closed(self) -> bool:
        return self._owned.is_closed

    def raise_if_closed(self) -> None:
        """Raise ClosedError once it is closed, or its device was reset."""
        self._owned.get()

    def launch(self, stream: StreamLike | None = None, event: Event | None = None) -> None:
        """Launch in the order of `stream`, by default the device's current one; return at once.

        With an `event`, record it behind the launch. Raises ValueError for a stream or event of
        another device. (cuGraphLaunch, cuEventRecord)
        """
        owned = self._owned
        raw = owned.raw
        token = here.token
        # A token identifies one life of one context: equal tokens mean the same device.
        if (
            raw is None
            or stream.__class__ is not Stream
            or (theirs := stream._owned) is None
            or (on := theirs.raw) is None
            or theirs.token is not token
            or owned.token is not token
            or owned.context.token is not token
        ):
            on = self._on(stream)
            raw = owned.get()
        code = driver.cuGraphLaunch(raw, on)[0]
        if code:
            raise failure(code, "cuGraphLaunch")
        if event is not None:
            mine = event.owned
            if mine.token is token and (behind := mine.raw) is not None:
                code = driver.cuEventRecord(behind, on)[0]
                if code:
                    raise failure(code, "cuEventRecord")
                event.was_recorded = True
            else:
                event.record(stream)

    def update(self, graph: Graph) -> None:
        """From the next launch on do the present work of `graph`, which has the same nodes and
        edges; enqueued launches do not change. (cuGraphExecUpdate)

        Raises CudaError, with nothing changed, if the driver cannot; its note names the node and
        the reason. In that case instantiate the graph.
        """
        code, reason, node = update(int(self._owned.ready()), int(graph.whole()))
        if code:
            error = failure(code, "cuGraphExecUpdate")
            kinds = {each.handle: each.kind for each in graph.nodes}
            where = f"a {kinds[node]} node of the graph" if node in kinds else "the graph"
            error.add_note(f"{where}: {reason or 'its topology or type differs'}")
            raise error
        self._keeps = (*self._keeps, *graph.kept())

    def handed_on(self) -> GraphExec:
        """The same executable as another object, which takes over the kept operands. Closing one
        closes both; the executable is destroyed when both are gone."""
        made = GraphExec.__new__(GraphExec)
        made._device, made._owned, made._keeps = self._device, self._owned, self._keeps
        self._keeps = ()
        return made

    def keeping(self, *things: object) -> GraphExec:
        """The same executable as another object, which keeps `things` and this object alive.
        Closing one closes both."""
        made = GraphExec.__new__(GraphExec)
        made._device, made._owned, made._keeps = self._device, self._owned, (self, *things)
        return made

    def change(self, node: GraphNode, work: Work) -> None:
        """Let `node`, of this executable's graph, do `work` of its kind from the next launch on.

        Raises TypeError for work of another kind, or of a kind that cannot be changed, CudaError if
        the driver refuses. (cuGraphExec...NodeSetParams)
        """
        if node.kind != work.kind or not work.change:
            raise TypeError(
                f"a {node.kind} node cannot do the work of a {work.kind} node"
                if node.kind != work.kind
                else f"a {work.kind} node cannot change in an executable graph: build a new graph"
            )
        params = work.params(self._device)
        check(getattr(driver, work.change)(self._owned.ready(), node.raw, *params), work.change)
        self._keeps = (*self._keeps, work.keeps)

    def follower(self, node: GraphNode, launch: Launch) -> Callable[[], None]:
        """A function that lets `node`, of this executable's graph, use the arguments that `launch`
        has when it is called, from the next launch of this executable on.

        The graph must stay open. Raises ValueError for a kernel of another device.
        (cuGraphExecKernelNodeSetParams)
        """
        (params,) = Kernel(launch).params(self._device)
        owned, raw = self._owned, node.raw
        self._keeps = (*self._keeps, launch)

        def follow() -> None:
            code = driver.cuGraphExecKernelNodeSetParams(owned.ready(), raw, params)[0]
            if code:
                raise failure(code, "cuGraphExecKernelNodeSetParams")

        return follow

    def enable(self, node: GraphNode) -> None:
        """Enable a disabled kernel, copy or fill. (cuGraphNodeSetEnabled)"""
        self._set_enabled(node, True)

    def disable(self, node: GraphNode) -> None:
        """Disable a kernel, copy or fill: its node does nothing until it is enabled.

        (cuGraphNodeSetEnabled)
        """
        self._set_enabled(node, False)

    def is_enabled(self, node: GraphNode) -> bool:
        """Whether a kernel, copy or fill is enabled. (cuGraphNodeGetEnabled)"""
        found = driver.cuGraphNodeGetEnabled(self._owned.ready(), node.raw)
        return bool(check(found, "cuGraphNodeGetEnabled"))

    def _set_enabled(self, node: GraphNode, is_enabled: bool) -> None:
        call = driver.cuGraphNodeSetEnabled(self._owned.ready(), node.raw, int(is_enabled))
        check(call, "cuGraphNodeSetEnabled")

    @classmethod
    def from_handle(cls, handle: SupportsIndex, device: DeviceLike | None = None) -> GraphExec:
        """Another library's executable graph, by its CUgraphExec as an integer. Its owner still
        destroys it; `close` only ends the use here."""
        on = given_device(device)
        on.context.enter()
        made = cls.__new__(cls)
        made._device = on
        made._keeps = ()
        raw = driver.CUgraphExec(operator.index(handle))
        made._owned = Owned(on.context, raw, leave, noun="executable graph", blocking=False)
        return made

    def upload(self, stream: StreamLike | None = None) -> None:
        """Prepare the device for a launch, in the order of `stream`: the first launch is then as
        fast as later ones. (cuGraphUpload)"""
        code = driver.cuGraphUpload(self._owned.get(), self._on(stream))[0]
        if code:
            raise failure(code, "cuGraphUpload")

    def close(self) -> None:
        """Destroy it; enqueued launches still run. Closing twice is harmless.

        (cuGraphExecDestroy)
        """
        self._owned.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _on(self, stream: StreamLike | None) -> Any:
        on = as_stream(stream, self._device)
        if on.device is not self._device:
            raise ValueError(f"the graph belongs to {self._device!r}, the stream to {on.device!r}")
        return on.enter()

    def __repr__(self) -> str:
        return "<GraphExec closed>" if self.is_closed else f"<GraphExec on {self._device!r}>"
