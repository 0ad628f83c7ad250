"""Cellar. All captures of a machine: begin, end, and the calls forbidden meanwhile."""

from __future__ import annotations

from contextlib import suppress
from threading import get_ident
from typing import TYPE_CHECKING, NoReturn

from cudasync.softgpu.core.driver_types.result_codes import (
    CAPTURED_EVENT,
    ILLEGAL_STATE,
    INVALID_VALUE,
    STREAM_CAPTURE_IMPLICIT,
    STREAM_CAPTURE_UNJOINED,
    STREAM_CAPTURE_UNMATCHED,
    STREAM_CAPTURE_UNSUPPORTED,
    STREAM_CAPTURE_WRONG_THREAD,
    DriverFailure,
)
from cudasync.softgpu.core.driver_types.thread_state import PerThread
from cudasync.softgpu.core.graphs.graph import Graph
from cudasync.softgpu.core.graphs.stream_capture import Capture, LegacyGuard, Mode, invalidate
from cudasync.softgpu.core.streams.streams import NON_BLOCKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cudasync.softgpu.core.context import Context
    from cudasync.softgpu.core.graphs.graph import Edge, Node
    from cudasync.softgpu.core.green_contexts.contexts import GreenContext
    from cudasync.softgpu.core.streams.streams import Event, Stream

# A look-up here, because a call of the class takes ten times as long.
_MODES = tuple(Mode)


class _Own:
    """The capture mode of a thread."""

    def __init__(self) -> None:
        self.mode = Mode.GLOBAL


class Captures:
    """The active captures.

    Threads begin and end captures concurrently, and a finaliser may end one anywhere, so there is
    no lock: each change of a list or dict is one C call, and iterations use copies.
    """

    def __init__(self) -> None:
        self.active: list[Capture] = []
        self._modes: PerThread[_Own] = PerThread(_Own, {})

    def exchange_mode(self, mode: int) -> int:
        """cuThreadExchangeStreamCaptureMode: set the thread's mode; return the previous one."""
        own = self._modes.own
        before, own.mode = own.mode, _mode(mode)
        return before

    # From beginning to end

    def begin(self, stream: Stream, mode: int, graph: Graph | None = None) -> Capture:
        """Capture the commands enqueued on the stream from now on."""
        asked = _mode(mode)
        if stream.is_legacy:
            raise DriverFailure(
                STREAM_CAPTURE_UNSUPPORTED,
                "the legacy default stream cannot be captured: use another",
            )
        if stream.capture is not None:
            raise DriverFailure(ILLEGAL_STATE, f"{stream.name} is being captured already")
        made = graph is None
        capture = Capture(stream, asked, Graph() if graph is None else graph, owns_graph=made)
        self.active.append(capture)
        self._join(capture, stream, {})
        return capture

    def begin_to(
        self, stream: Stream, mode: int, graph: Graph, tips: Mapping[Node, Edge]
    ) -> Capture:
        """Like `begin`, into an existing graph, after some of its nodes."""
        capture = self.begin(stream, mode, graph)
        capture.tips[stream] = dict(tips)
        return capture

    def _join(self, capture: Capture, stream: Stream, tips: Mapping[Node, Edge]) -> None:
        capture.join(stream, dict(tips))
        if not stream.flags & NON_BLOCKING:
            stream.context.capturing[capture] = None
            _guard_legacy(stream.context)

    def end(self, stream: Stream) -> Graph:
        """End a capture and return its graph; DriverFailure if there is no graph or no capture."""
        capture = stream.capture
        if not isinstance(capture, Capture):
            raise DriverFailure(ILLEGAL_STATE, f"{stream.name} is not being captured")
        if capture.origin is not stream:
            capture.fail(
                DriverFailure(
                    STREAM_CAPTURE_UNMATCHED,
                    f"end the capture on {capture.origin.name}, where it began",
                )
            )
        if capture.thread != get_ident() and capture.mode is not Mode.RELAXED:
            raise DriverFailure(
                STREAM_CAPTURE_WRONG_THREAD,
                "another thread began the capture: end it there, or capture in RELAXED mode",
            )
        unjoined = None if capture.complaint else capture.unjoined()
        self.forget(capture)
        capture.check()
        if unjoined is not None:
            raise DriverFailure(
                STREAM_CAPTURE_UNJOINED,
                f"{stream.name} must wait for an event recorded after the work in {unjoined.name}",
            )
        return capture.graph

    def forget(self, capture: Capture) -> None:
        """Take all streams out of a capture."""
        capture.end()
        with suppress(ValueError):  # A finaliser was faster.
            self.active.remove(capture)
        for context in {stream.context for stream in list(capture.tips)}:
            if capture in context.capturing:
                context.capturing.pop(capture, None)
                _guard_legacy(context)

    def leave(self, stream: Stream) -> None:
        """Called when a stream is destroyed: ends a capture that began on it.

        A capture that the stream had joined goes on. The stream's work must be joined before that
        capture ends: cuda.core destroys streams as soon as they are joined.
        """
        capture = stream.capture
        if isinstance(capture, Capture) and capture.origin is stream:
            invalidate([capture], f"{stream.name} was destroyed")
            self.forget(capture)

    def of(self, stream: Stream) -> Capture | None:
        """A stream's capture; STREAM_CAPTURE_IMPLICIT for a guarded legacy stream."""
        capture = stream.capture
        if isinstance(capture, LegacyGuard):
            raise DriverFailure(
                STREAM_CAPTURE_IMPLICIT,
                "the legacy default stream waits for a stream that is being captured",
            )
        return capture if isinstance(capture, Capture) else None

    # Events

    def wait(self, stream: Stream, event: Event, flags: int) -> bool:
        """Perform a wait if the stream or the event is captured; False if neither is."""
        capture = stream.capture
        captured = event.captured
        if isinstance(capture, Capture):
            capture.wait(stream, event, flags)
            return True
        if capture is not None:
            capture.refuse(f"a wait on {stream.name}")
        if captured is None:
            return False
        if captured.capture.is_over:
            raise DriverFailure(
                CAPTURED_EVENT,
                "the event was recorded in a capture that has ended: record it again",
            )
        captured.capture.check()
        if stream.is_legacy:
            invalidate(
                [captured.capture], "the legacy default stream waited for an event of the capture"
            )
            raise DriverFailure(
                STREAM_CAPTURE_IMPLICIT, "the legacy default stream cannot join a capture"
            )
        self._join(captured.capture, stream, captured.tips)
        return True

    def refuse_event(self, event: Event, what: str) -> None:
        """Called when the host waits for an event, or queries it."""
        captured = event.captured
        if captured is not None:
            if not captured.capture.is_over:
                invalidate([captured.capture], f"{what} of a captured event")
            raise DriverFailure(CAPTURED_EVENT, f"{what} of an event recorded in a capture")
        if self.active:
            self.refuse_unsafe(what)

    def refuse_context_wait(
        self, context: Context, event: Event, green: GreenContext | None = None
    ) -> None:
        """Called when a whole context is to wait for an event.

        CUDA refuses the call for two reasons, and invalidates the capture in both cases.
        """
        what = "a wait of the context"
        captured = event.captured
        if captured is not None:
            if captured.capture.is_over:
                raise DriverFailure(CAPTURED_EVENT, f"{what} for an event recorded in a capture")
            _refuse([captured.capture], what)
        self.refuse_context(context, what, green)

    # Forbidden calls

    def refuse_graph(self, graph: Graph, what: str) -> None:
        """Called for an operation on a graph that is forbidden during a capture into it."""
        if any(capture.graph is graph for capture in self.active.copy()):
            raise DriverFailure(INVALID_VALUE, f"a graph cannot be {what} during a capture into it")

    def refuse_context(
        self, context: Context, what: str, green: GreenContext | None = None
    ) -> None:
        """Called when the host waits for a whole context, or for one of its green contexts."""
        if self.active:
            here = [
                c
                for c in self.active.copy()
                if any(
                    s.context is context and (green is None or s.green is green)
                    for s in list(c.tips)
                )
            ]
            if here:
                _refuse(here, what)

    def refuse_unsafe(self, what: str) -> None:
        """Called for a call that might disturb a capture; the capture modes decide."""
        if not self.active or self._modes.own.mode is Mode.RELAXED:
            return
        thread, active = get_ident(), self.active.copy()
        found = [c for c in active if c.thread == thread and c.mode is not Mode.RELAXED]
        if self._modes.own.mode is Mode.GLOBAL:
            found += [c for c in active if c.thread != thread and c.mode is Mode.GLOBAL]
        if found:
            _refuse(found, what)


def _guard_legacy(context: Context) -> None:
    """Guard the legacy stream while blocking streams are captured; called after each change.

    Several threads may do so at once. Each reads the dict again after its store, so the last
    stored value is right.
    """
    capturing, legacy = context.capturing, context.legacy
    while True:
        is_guarded = bool(capturing.copy())
        legacy.capture = LegacyGuard(capturing) if is_guarded else None
        if bool(capturing.copy()) == is_guarded:
            return


def _refuse(captures: list[Capture], what: str) -> NoReturn:
    invalidate(captures, f"{what} while a stream is captured")
    raise DriverFailure(STREAM_CAPTURE_UNSUPPORTED, f"{what} while a stream is captured")


def _mode(value: int) -> Mode:
    if value not in (0, 1, 2):
        raise DriverFailure(INVALID_VALUE, f"there is no capture mode {value}")
    return _MODES[value]
