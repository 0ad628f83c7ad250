"""Cellar. Streams and events.

A stream is the tail of a chain of commands; each command depends on its predecessor. The legacy
default stream of a context joins with the context's blocking streams: its commands wait for the
tails of all of them, and their commands wait for its tail. An event is the tail of its stream at
the call of `record`. So an earlier wait keeps waiting for the earlier record, and a wait for an
event without a record waits for nothing. A stream keeps its waits in `waits`, for the next
command.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from cudasync.softgpu.core.driver_types.handles import new_handle
from cudasync.softgpu.core.driver_types.result_codes import INVALID_HANDLE, NOT_READY, DriverFailure

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cudasync.softgpu.core.context import Context
    from cudasync.softgpu.core.graphs.stream_capture import Captor, CapturedRecord
    from cudasync.softgpu.core.green_contexts.contexts import GreenContext
    from cudasync.softgpu.core.streams.commands import Command
    from cudasync.softgpu.core.streams.interprocess_events import SharedEvent

# cuStreamCreate, cuEventCreate flags.
NON_BLOCKING: Final = 1
DISABLE_TIMING: Final = 2
INTERPROCESS: Final = 4

# The handles that name a default stream instead of an object.
DEFAULT_HANDLE: Final = 0
LEGACY_HANDLE: Final = 1
PER_THREAD_HANDLE: Final = 2

LOWEST_PRIORITY: Final = 0
HIGHEST_PRIORITY: Final = -5


class Stream:
    """A queue of commands that run in order."""

    __slots__ = (
        "attributes",
        "capture",
        "context",
        "flags",
        "floor_us",
        "green",
        "handle",
        "is_closed",
        "is_legacy",
        "name",
        "pending",
        "priority",
        "tail",
        "time_us",
        "waits",
    )

    def __init__(
        self,
        context: Context,
        *,
        flags: int = 0,
        priority: int = 0,
        name: str = "",
        is_legacy: bool = False,
        green: GreenContext | None = None,
    ) -> None:
        self.context = context
        # The green context that it was created in; it runs on that context's multiprocessors.
        self.green = green
        self.flags = flags
        self.priority = min(LOWEST_PRIORITY, max(HIGHEST_PRIORITY, priority))
        self.handle = new_handle()
        self.name = name or f"stream {self.handle:#x}"
        self.is_legacy = is_legacy
        # Attributes without an effect here: stored and returned.
        self.attributes: dict[int, bytes] = {}
        self.is_closed = False
        # Receives the enqueued commands instead of the executor.
        self.capture: Captor | None = None
        # The first command waits for the gate, so for the waits of the whole context.
        gate = context.gate
        self.tail: Command | None = gate.tail if gate is not None else None
        self.pending: deque[Command] = deque()
        self.time_us = 0.0
        # What the next command waits for beside the tail; always empty in the legacy default
        # stream. A thread that removes an entry holds the executor's lock. The next command starts
        # no earlier than `floor_us`, the virtual time at which waits for finished commands ended.
        self.waits: dict[Command, None] = {}
        self.floor_us = 0.0

    def begin_behind(self, gate: Stream) -> None:
        """Let a new stream wait for the gate's tail, as earlier streams do."""
        tail = gate.tail
        if tail is not None and tail is not self.tail and not tail.is_done:
            self.waits[tail] = None

    def implicit_waits(self) -> Iterable[Command]:
        """The dependencies that the legacy default stream's rules add to a command here now."""
        if self.is_legacy:
            blocking = [
                other
                for other in list(self.context.streams)
                if other is not self and not other.flags & NON_BLOCKING
            ]
            tails = [other.tail for other in blocking if other.pending and other.tail is not None]
            return tails + [awaited for other in blocking for awaited in list(other.waits)]
        legacy = self.context.legacy
        if legacy.pending and legacy.tail is not None and not self.flags & NON_BLOCKING:
            return (legacy.tail,)
        return ()


class Event:
    """A point in a stream, once recorded."""

    __slots__ = ("captured", "context", "flags", "handle", "record", "shared", "since_us")

    def __init__(self, context: Context, flags: int) -> None:
        self.context = context
        self.flags = flags
        self.handle = new_handle()
        # The command that the event comes after; None if no work was pending, or without a record.
        self.record: Command | None = None
        # A lower bound of the event's time by the streams' clock; negative without a record.
        self.since_us = -1.0
        # Set if the latest record was made in a captured stream: the nodes it stands for.
        self.captured: CapturedRecord | None = None
        # Of an event between processes: the page with its counters; `record` is then unused.
        self.shared: SharedEvent | None = None

    def reached_us(self) -> float:
        """The time at which its record was done; the record must be done."""
        record = self.record
        return self.since_us if record is None else max(self.since_us, record.time_us)


def elapsed_ms(start: Event, end: Event) -> float:
    """Virtual milliseconds between two recorded points that have been reached."""
    if (start.flags | end.flags) & DISABLE_TIMING:
        raise DriverFailure(INVALID_HANDLE, "both events must be created without DISABLE_TIMING")
    if start.since_us < 0 or end.since_us < 0:
        raise DriverFailure(INVALID_HANDLE, "both events must have been recorded")
    if not all(event.record is None or event.record.is_done for event in (start, end)):
        raise DriverFailure(NOT_READY, "an event has been recorded but not reached")
    return (end.reached_us() - start.reached_us()) / 1000.0
