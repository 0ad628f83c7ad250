"""Floor 1, graphs. `CaptureToGraph`: stream captures whose work becomes nodes of one graph.

A graph is whole unless a capture into it is under way or has failed. Only a whole graph has copies:
clones, executable graphs, and children of other graphs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cuda.bindings import driver

from cudasync.driver.graph import edges
from cudasync.driver.ownership.handles import leave
from cudasync.driver.result import check, failure

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cudasync.driver.ownership.handles import Owned
    from cudasync.driver.streams.stream import Stream

_RELAXED = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
_INVALIDATED = int(driver.CUresult.CUDA_ERROR_STREAM_CAPTURE_INVALIDATED)
# The index, among the results of cuStreamGetCaptureInfo, of the nodes that precede the next node.
_LEAVES = 3


class CaptureToGraph:
    """The captures into one graph, one after the other."""

    __slots__ = ("_is_whole", "_owned", "was_broken")

    def __init__(self, graph: Owned) -> None:
        self._owned = graph
        # False from the beginning of a capture until it ends without error.
        self._is_whole = True
        # True once a call that the driver refused broke a capture. The graph is closed then.
        self.was_broken = False

    def begin(self, stream: Any, mode: Any, before: Sequence[Any] = ()) -> None:
        """From now on work enqueued on the stream becomes nodes behind `before`.

        (cuStreamBeginCaptureToGraph)
        """
        self._is_whole = False
        behind, data = list(before), edges.plain(len(before))
        graph = self._owned.ready()
        check(
            driver.cuStreamBeginCaptureToGraph(stream, graph, behind, data, len(behind), mode),
            "cuStreamBeginCaptureToGraph",
        )

    def end(self, stream: Any, cause: BaseException | None = None) -> None:
        """End the capture of the stream, perhaps because of an exception. (cuStreamEndCapture)

        If the capture failed, the driver has destroyed the graph, and it counts as closed. Then
        this raises CudaError, or tells the exception.
        """
        code = driver.cuStreamEndCapture(stream)[0]
        if not code:
            self._is_whole = cause is None
            return
        self.was_broken = int(code) == _INVALIDATED
        self._owned.close(leave)
        error = failure(code, "cuStreamEndCapture")
        (cause or error).add_note(f"{error}; the driver has destroyed the graph: build another")
        if cause is None:
            raise error

    def add(
        self, enqueue: Callable[[Stream], object], stream: Stream, before: Sequence[Any]
    ) -> list[Any]:
        """Call `enqueue(stream)` with `stream` captured behind the nodes in `before`. Returns its
        nodes without successors among these: see `Graph.add_captured`."""
        raw = stream.enter()
        self.begin(raw, _RELAXED, before)
        try:
            enqueue(stream)
            found = check(driver.cuStreamGetCaptureInfo(raw), "cuStreamGetCaptureInfo")
        except BaseException as error:
            self.end(raw, error)
            raise
        self.end(raw)
        return list(found[_LEAVES])

    def whole(self) -> Any:
        """The graph's handle. Raises ValueError unless the graph is whole."""
        if not self._is_whole:
            raise ValueError(
                "a capture into the graph is under way or has failed: end the capture, or build "
                "a new graph"
            )
        return self._owned.ready()
