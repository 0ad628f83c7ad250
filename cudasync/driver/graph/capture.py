"""Floor 1, graphs. Stream capture: work enqueued on the stream goes into a graph, and does not run.

The capture records driver calls from any library. Another stream joins by a wait for an event of
the captured stream; the captured stream must wait for it before the capture ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from cuda.bindings import driver

from cudasync.driver.graph.graph import Graph

if TYPE_CHECKING:
    from types import TracebackType
    from typing import TypeAlias

    from cudasync.driver.streams.stream import Stream

    # The threads whose calls the driver refuses meanwhile if they cannot be captured: all threads,
    # the capturing thread, none.
    CaptureMode: TypeAlias = Literal["global", "thread_local", "relaxed"]

_MODES = {
    name: getattr(driver.CUstreamCaptureMode, f"CU_STREAM_CAPTURE_MODE_{name.upper()}")
    for name in ("global", "thread_local", "relaxed")
}


class Capture:
    """`with stream.capture() as graph:` the graph is complete once the block ends without error."""

    def __init__(self, stream: Stream, mode: CaptureMode) -> None:
        if mode not in _MODES:
            raise ValueError(
                f"the capture mode must be 'global', 'thread_local' or 'relaxed', not {mode!r}"
            )
        if not stream.is_owned and stream.handle in (0, 1):
            raise ValueError("the legacy default stream cannot be captured: use a Stream")
        self._stream = stream
        self._mode = _MODES[mode]
        self._graph: Graph | None = None

    def __enter__(self) -> Graph:
        graph = Graph(self._stream.device)
        graph.captures.begin(self._stream.enter(), self._mode)
        self._graph = graph
        return graph

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        graph, self._graph = self._graph, None
        assert graph is not None, "a capture is entered once"
        graph.captures.end(self._stream.enter(), error)
