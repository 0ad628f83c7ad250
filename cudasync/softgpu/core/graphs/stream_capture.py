"""Cellar. Stream capture: commands that become nodes instead of being executed.

True of an active capture:
- exactly the streams in `tips` have it as their `capture`;
- `tips[stream]` are the nodes that the stream's next node will depend on;
- once `complaint` is set, the capture takes no more nodes, and its end gives no graph.
"""

from __future__ import annotations

from enum import IntEnum, unique
from itertools import count
from threading import get_ident
from typing import TYPE_CHECKING, Final, NoReturn, Protocol

from cudasync import late
from cudasync.softgpu.core.driver_types.result_codes import (
    CAPTURED_EVENT,
    STREAM_CAPTURE_IMPLICIT,
    STREAM_CAPTURE_INVALIDATED,
    STREAM_CAPTURE_ISOLATION,
    STREAM_CAPTURE_MERGE,
    STREAM_CAPTURE_UNSUPPORTED,
    DriverFailure,
)
from cudasync.softgpu.core.graphs.graph import PLAIN

if TYPE_CHECKING:
    import ctypes
    from collections.abc import Callable, Iterable

    from cudasync.softgpu.core.graphs.graph import Edge, Graph, Node
    from cudasync.softgpu.core.graphs.node_parameters import Work
    from cudasync.softgpu.core.streams.commands import Command
    from cudasync.softgpu.core.streams.streams import Event, Stream

# Kinds of nodes: most programs capture nothing.
if TYPE_CHECKING:
    from cudasync.softgpu.core.graphs import captured_commands as _commands
    from cudasync.softgpu.core.graphs import node_parameters as _parameters
else:
    _commands = late.Module("cudasync.softgpu.core.graphs.captured_commands")
    _parameters = late.Module("cudasync.softgpu.core.graphs.node_parameters")


@unique
class Mode(IntEnum):
    """CUstreamCaptureMode: which threads must not make unsafe calls during the capture."""

    GLOBAL = 0
    THREAD_LOCAL = 1
    RELAXED = 2


@unique
class Status(IntEnum):
    """CUstreamCaptureStatus."""

    NONE = 0
    ACTIVE = 1
    INVALIDATED = 2


_identities = count(1)

EXTERNAL: Final = 1
"""CU_EVENT_RECORD_EXTERNAL, CU_EVENT_WAIT_EXTERNAL: adds a node to record or wait at a launch."""


class Captor(Protocol):
    """The type of a stream's `capture`."""

    def take(self, command: Command) -> None:
        """Called with a command instead of enqueueing it."""

    def refuse(self, what: str) -> NoReturn:
        """Called when a program waits for the stream, or queries it."""


class CapturedRecord:
    """The nodes that an event recorded in a captured stream stands for."""

    __slots__ = ("capture", "tips")

    def __init__(self, capture: Capture, tips: dict[Node, Edge]) -> None:
        self.capture = capture
        self.tips = tips


class Capture:
    """One capture, from its beginning to its end."""

    def __init__(self, origin: Stream, mode: Mode, graph: Graph, *, owns_graph: bool) -> None:
        self.identity = next(_identities)
        # Imported here, since `take` is called under locks.
        self._work_of: Callable[[Command], Work] = _commands.work_of
        self.origin = origin
        self.mode = mode
        self.graph = graph
        self.owns_graph = owns_graph
        self.thread = get_ident()
        self.complaint = ""
        self.is_over = False
        self.tips: dict[Stream, dict[Node, Edge]] = {}
        # Keeps arrays alive to which the program has pointers.
        self.kept: tuple[ctypes.Array[ctypes.c_uint64], ctypes.Array[ctypes.c_uint8]] | None = None

    @property
    def status(self) -> Status:
        return Status.INVALIDATED if self.complaint else Status.ACTIVE

    def join(self, stream: Stream, tips: dict[Node, Edge]) -> None:
        """Add a stream to the capture, after some nodes."""
        self.tips[stream] = dict(tips)
        stream.capture = self

    def take(self, command: Command) -> None:
        """Add a command's work as a node, at the end of its stream."""
        self.check()
        try:
            work = self._work_of(command)
        except DriverFailure as failure:
            self.fail(failure)
        self.add(command.stream, work)

    def add(self, stream: Stream, work: Work) -> Node:
        """Add a node at the end of a stream."""
        self.check()
        tips = {n: e for n, e in self.tips[stream].items() if n in self.graph.nodes}
        node = self.graph.add(work, tips.items())
        self.tips[stream] = {node: PLAIN}
        return node

    def record(self, event: Event, stream: Stream, flags: int) -> None:
        """Let the event stand for this point, or add a node that records it."""
        self.check()
        if flags & EXTERNAL:
            self.add(stream, _parameters.RecordWork(event))
        else:
            event.captured = CapturedRecord(self, dict(self.tips[stream]))
            event.record, event.since_us = None, -1.0

    def wait(self, stream: Stream, event: Event, flags: int) -> None:
        """Let one of its streams wait for an event."""
        self.check()
        captured = event.captured
        if flags & EXTERNAL:
            self.add(stream, _parameters.WaitWork(event))
        elif captured is None:
            self.fail(
                DriverFailure(
                    STREAM_CAPTURE_ISOLATION,
                    f"{stream.name} would wait for work outside the capture",
                )
            )
        elif captured.capture is not self:
            self._refuse_merge(captured)
        else:
            self.tips[stream].update(captured.tips)

    def _refuse_merge(self, captured: CapturedRecord) -> NoReturn:
        if captured.capture.is_over:
            self.fail(
                DriverFailure(CAPTURED_EVENT, "the event was recorded in a capture that has ended")
            )
        if not captured.capture.complaint:
            captured.capture.complaint = "it would have been merged with another capture"
        self.fail(DriverFailure(STREAM_CAPTURE_MERGE, "the event was recorded in another capture"))

    def refuse(self, what: str) -> NoReturn:
        """Invalidate the capture with STREAM_CAPTURE_UNSUPPORTED."""
        self.check()
        self.fail(DriverFailure(STREAM_CAPTURE_UNSUPPORTED, f"{what} while it is captured"))

    def fail(self, failure: DriverFailure) -> NoReturn:
        """Invalidate the capture for this failure."""
        self.complaint = self.complaint or failure.detail
        raise failure

    def check(self) -> None:
        """STREAM_CAPTURE_INVALIDATED, with the reason, if the capture is invalid."""
        if self.complaint:
            raise DriverFailure(
                STREAM_CAPTURE_INVALIDATED, f"the capture is invalid: {self.complaint}"
            )

    def unjoined(self) -> Stream | None:
        """A stream with nodes that do not come before the origin's tip."""
        reached = set(stack := list(self.tips[self.origin]))
        while stack:
            for other in stack.pop().dependencies:
                if other not in reached:
                    reached.add(other)
                    stack.append(other)
        for stream, tips in list(self.tips.items()):
            if any(node not in reached and node in self.graph.nodes for node in tips):
                return stream
        return None

    def end(self) -> None:
        """End the capture for all its streams."""
        self.is_over = True
        for stream in list(self.tips):
            if stream.capture is self:
                stream.capture = None


class LegacyGuard:
    """The `capture` of a legacy default stream while blocking streams are captured."""

    def __init__(self, captures: Iterable[Capture]) -> None:
        self._captures = captures

    def take(self, command: Command) -> None:
        self._fail(f"{command.describe()} on the legacy default stream")

    def refuse(self, what: str) -> NoReturn:
        self._fail(what)

    def _fail(self, what: str) -> NoReturn:
        complaint = f"{what} would wait for captured streams"
        invalidate(list(self._captures), complaint)
        raise DriverFailure(STREAM_CAPTURE_IMPLICIT, complaint)


def invalidate(captures: Iterable[Capture], complaint: str) -> None:
    """Invalidate several captures for one reason."""
    for capture in captures:
        capture.complaint = capture.complaint or complaint
