"""Floor 1, graphs. What was instantiated of a graph: it can be launched, and does not change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cuda.bindings import driver

from cudasync.driver.context import here
from cudasync.driver.current_stream import as_stream
from cudasync.driver.owned import Owned
from cudasync.driver.result import failure
from cudasync.driver.stream import Stream
from cudasync.driver.unpicklable import unpicklable

if TYPE_CHECKING:
    from cudasync.driver.device import Device
    from cudasync.driver.event import Event
    from cudasync.driver.stream import StreamLike


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

    def _on(self, stream: StreamLike | None) -> Any:
        on = as_stream(stream, self._device)
        if on.device is not self._device:
            raise ValueError(f"the graph is of {self._device!r}, the stream is of {on.device!r}")
        return on.enter()

    def __repr__(self) -> str:
        return "<GraphExec closed>" if self.is_closed else f"<GraphExec on {self._device!r}>"
