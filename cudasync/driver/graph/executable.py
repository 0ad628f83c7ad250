"""Floor 1, graphs. What was instantiated of a graph: it can be launched, and does not change."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, SupportsIndex

from cuda.bindings import driver

from cudasync.driver.context import here
from cudasync.driver.graph.updating import update
from cudasync.driver.ownership.handles import Owned
from cudasync.driver.ownership.unpicklable import unpicklable
from cudasync.driver.result import check, failure
from cudasync.driver.streams.chosen_stream import as_stream
from cudasync.driver.streams.current_streams import given_device
from cudasync.driver.streams.stream import Stream

if TYPE_CHECKING:
    from typing import Self

    from cudasync.driver.device import Device, DeviceLike
    from cudasync.driver.graph.graph import Graph
    from cudasync.driver.graph.node import GraphNode
    from cudasync.driver.graph.work import Work
    from cudasync.driver.streams.event import Event
    from cudasync.driver.streams.stream import StreamLike


@unpicklable("make the graph there")
class GraphExec:
    """A graph that is ready to be launched, made by `Graph.instantiate()`.

    It keeps alive what its nodes refer to. Launches of it run one after the other.
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
        # A token is of one life of one context: where they are the same, so is the device.
        if (
            stream.__class__ is Stream
            and (theirs := stream._owned) is not None
            and token is theirs.token is owned.token is owned.context.token
            and raw is not None
            and theirs.raw is not None
        ):
            on = theirs.raw
        else:
            on = self._on(stream)
            raw = owned.get()
        code = driver.cuGraphLaunch(raw, on)[0]
        if code:
            raise failure(code, "cuGraphLaunch")
        if event is not None:
            mine = event.owned
            if token is mine.token and mine.raw is not None:
                code = driver.cuEventRecord(mine.raw, on)[0]
                if code:
                    raise failure(code, "cuEventRecord")
                event.was_recorded = True
            else:
                event.record(stream)

    def update(self, graph: Graph) -> None:
        """Do from the next launch on what `graph` does now, which has the same nodes and edges;
        launches that are enqueued go on as they were. (cuGraphExecUpdate)

        Raises CudaError, with nothing changed, where the driver can not; a note of it names the
        node and the reason. Then instantiate the graph.
        """
        code, reason, node = update(int(self._owned.ready()), int(graph.whole()))
        if code:
            error = failure(code, "cuGraphExecUpdate")
            kinds = {each.handle: each.kind for each in graph.nodes}
            where = f"a {kinds[node]} node of the graph" if node in kinds else "the graph"
            error.add_note(f"{where}: {reason or 'it differs'}")
            raise error
        self._keeps = (*self._keeps, *graph.kept())

    def handed_on(self) -> GraphExec:
        """The same executable as another object, which keeps alive what this one did. Closing one
        closes both; it is destroyed when both are gone."""
        made = GraphExec.__new__(GraphExec)
        made._device, made._owned, made._keeps = self._device, self._owned, self._keeps
        self._keeps = ()
        return made

    def change(self, node: GraphNode, work: Work) -> None:
        """Have `node`, of the graph that this is of, do `work` of its kind from the next launch on.

        Raises TypeError for work of another kind, or of a kind that can not be changed, CudaError
        for what the driver does not take. (cuGraphExec...NodeSetParams)
        """
        if node.kind != work.kind or not work.change:
            raise TypeError(
                f"a {node.kind} node can not do the work of a {work.kind} node"
                if node.kind != work.kind
                else f"a {work.kind} node is fixed once it is instantiated: build a new graph"
            )
        params = work.params(self._device)
        check(getattr(driver, work.change)(self._owned.ready(), node.raw, *params), work.change)
        self._keeps = (*self._keeps, work.keeps)

    def enable(self, node: GraphNode) -> None:
        """Have a kernel, copy or fill done again. (cuGraphNodeSetEnabled)"""
        self._set_enabled(node, True)

    def disable(self, node: GraphNode) -> None:
        """Leave out a kernel, copy or fill: its node is an empty one until it is enabled.

        (cuGraphNodeSetEnabled)
        """
        self._set_enabled(node, False)

    def is_enabled(self, node: GraphNode) -> bool:
        """Whether a kernel, copy or fill is done. (cuGraphNodeGetEnabled)"""
        found = driver.cuGraphNodeGetEnabled(self._owned.ready(), node.raw)
        return bool(check(found, "cuGraphNodeGetEnabled"))

    def _set_enabled(self, node: GraphNode, is_enabled: bool) -> None:
        call = driver.cuGraphNodeSetEnabled(self._owned.ready(), node.raw, int(is_enabled))
        check(call, "cuGraphNodeSetEnabled")

    @classmethod
    def from_handle(cls, handle: SupportsIndex, device: DeviceLike | None = None) -> GraphExec:
        """An executable graph of another library's, by its CUgraphExec as an integer: its owner
        still destroys it. `close` lets go of it."""
        on = given_device(device)
        on.context.enter()
        made = cls.__new__(cls)
        made._device = on
        made._keeps = ()
        raw = driver.CUgraphExec(operator.index(handle))
        made._owned = Owned(on.context, raw, _leave, noun="executable graph", blocking=False)
        return made

    def upload(self, stream: StreamLike | None = None) -> None:
        """Have the device ready for a launch, in the order of `stream`: the first is then as quick
        as the others. (cuGraphUpload)"""
        code = driver.cuGraphUpload(self._owned.get(), self._on(stream))[0]
        if code:
            raise failure(code, "cuGraphUpload")

    def close(self) -> None:
        """Destroy it; launches under way are carried out. Closing twice is harmless.

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
            raise ValueError(f"the graph is of {self._device!r}, the stream is of {on.device!r}")
        return on.enter()

    def __repr__(self) -> str:
        return "<GraphExec closed>" if self.is_closed else f"<GraphExec on {self._device!r}>"


def _leave(_: Any) -> tuple[int]:
    """What another has made, another destroys."""
    return (0,)
