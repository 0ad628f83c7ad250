"""Floor 1. Host operands of a stream's unfinished work, kept alive until the work has run.

A copy from or to host memory may run long after the call that enqueued it. So the stream keeps a
reference to the operand until it is known to have passed the copy: at the stream's or device's
synchronize, or when a marker is reached. A marker is an event recorded behind a batch of
references, every 64 references or 32 MiB. So the kept memory is bounded however the program waits.
A stream under capture gets no marker: an event recorded there would belong to the graph. The
owner of the graph must keep the operands of captured copies as long as the graph lives.

It also lends the stream's handle to threads that only want to ask about it. A real driver does not
check a handle, so nobody may destroy the stream meanwhile.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from cuda.bindings import driver

from cudasync.driver.streams.open_captures import Relaxed, is_captured
from cudasync.locks import Lock

if TYPE_CHECKING:
    from collections.abc import Callable

    from cudasync.driver.streams.event import Event
    from cudasync.driver.streams.stream import Stream

BATCH_COUNT = 64
BATCH_BYTES = 32 << 20


class InFlight:
    """References that one stream's unfinished work needs."""

    __slots__ = ("_batches", "_bytes", "_destroy", "_handle", "_kept", "_marking", "raw_stream")

    def __init__(self, raw_stream: Any) -> None:
        self.raw_stream = raw_stream
        # A list of one, empty while a thread asks about the stream, and once it is destroyed.
        # list.pop is one C call, so one of several threads gets the handle.
        self._handle = [raw_stream]
        # How to destroy the stream, once its owner wants that.
        self._destroy: list[Callable[[Any], Any]] = []
        # Appended to *after* the work is enqueued. So if a thread swaps the list for a new one and
        # then records a marker, the marker is behind all work of the list.
        self._kept: list[object] = []
        self._bytes = 0
        self._batches: deque[tuple[Event, list[object]]] = deque()
        self._marking = Lock()

    def keep(self, stream: Stream, operand: object, size_bytes: int) -> None:
        """Keep `operand` until `stream` has passed all its present work."""
        kept = self._kept
        kept.append(operand)
        self._bytes += size_bytes  # A lost update only moves the next marker.
        if len(kept) >= BATCH_COUNT or self._bytes >= BATCH_BYTES:
            self._mark(stream)

    def _mark(self, stream: Stream) -> None:
        marking = self._marking
        # One marker at a time, without waits: a second thread has nothing to do, and neither has a
        # finaliser that runs during it.
        if marking.is_held_here() or is_captured(self.raw_stream):
            return
        try:
            if not marking.acquire(blocking=False):
                return
            batches = self._batches
            marker = None
            with Relaxed():
                while batches and batches[0][0].query():
                    marker = batches.popleft()[0]
            batch, self._kept = self._kept, []
            self._bytes = 0
            # A reached marker is reused, so that marking makes no events.
            batches.append((stream.record(marker), batch))
            marking.release()
        except BaseException:
            if marking.is_held_here():
                marking.release()
            raise

    def take(self) -> list[object]:
        """Everything kept until now; the caller holds it while it waits for the stream."""
        with self._marking:
            batch, self._kept = self._kept, []
            self._bytes = 0
            taken: list[object] = [batch, *self._batches]
            self._batches.clear()
            return taken

    def restore(self, taken: list[object]) -> None:
        """Keep the references from `take` again: the wait did not succeed."""
        self._kept.append(taken)

    def ask(self, question: Callable[[Any], bool]) -> bool | None:
        """`question(handle)`, which must not block; None if another thread has the handle, or the
        stream is destroyed."""
        try:
            raw = self._handle.pop()
        except IndexError:
            return None
        try:
            return question(raw)
        finally:
            # Before the look, as `destroy` notes its wish before its own: one of the two sees both.
            self._handle.append(raw)
            if self._destroy:
                self._end()

    def destroy(self, how: Callable[[Any], Any]) -> Any:
        """`how(handle)`, here or by the thread that asks about the stream just now. Repeatable."""
        self._destroy.append(how)
        return self._end()

    def _end(self) -> Any:
        try:
            raw = self._handle.pop()
        except IndexError:
            return (driver.CUresult.CUDA_SUCCESS,)
        return self._destroy[0](raw)

    def __len__(self) -> int:
        return len(self._kept) + sum(len(batch) for _, batch in list(self._batches))
