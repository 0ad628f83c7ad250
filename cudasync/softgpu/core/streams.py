"""Cellar. Streams and events.

A stream is the tail of a chain of commands: each depends on the one before. The legacy default
stream of a context joins with the context's blocking streams: what is enqueued on it waits for
the tails of all of them, and what is enqueued on one of them waits for its tail. An event is
the last command that recorded it, taken when `record` is called; so a wait that was called
earlier keeps waiting for the earlier record, and one on an event that was never recorded
waits for nothing.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from cudasync.softgpu.core.handles import new_handle
from cudasync.softgpu.core.results import INVALID_HANDLE, NOT_READY, DriverFailure

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cudasync.softgpu.core.commands import Command, EventRecord
    from cudasync.softgpu.core.context import Context

# cuStreamCreate, cuEventCreate flags.
NON_BLOCKING: Final = 1
DISABLE_TIMING: Final = 2

# The handles that name a default stream instead of an object.
DEFAULT_HANDLE: Final = 0
LEGACY_HANDLE: Final = 1
PER_THREAD_HANDLE: Final = 2

LOWEST_PRIORITY: Final = 0
HIGHEST_PRIORITY: Final = -5


class Stream:
    """A queue of commands that run in order."""

    __slots__ = (
        "context",
        "flags",
        "handle",
        "is_closed",
        "is_legacy",
        "name",
        "pending",
        "priority",
        "tail",
        "time_us",
    )

    def __init__(
        self,
        context: Context,
        *,
        flags: int = 0,
        priority: int = 0,
        name: str = "",
        is_legacy: bool = False,
    ) -> None:
        self.context = context
        self.flags = flags
        self.priority = min(LOWEST_PRIORITY, max(HIGHEST_PRIORITY, priority))
        self.handle = new_handle()
        self.name = name or f"stream {self.handle:#x}"
        self.is_legacy = is_legacy
        self.is_closed = False
        self.tail: Command | None = None
        self.pending: deque[Command] = deque()
        self.time_us = 0.0

    def implicit_waits(self) -> Iterable[Command]:
        """What the rules of the legacy default stream add to a command enqueued here now."""
        if self.is_legacy:
            return [
                other.tail
                for other in list(self.context.streams)
                if other is not self
                and other.pending
                and other.tail is not None
                and not other.flags & NON_BLOCKING
            ]
        legacy = self.context.legacy
        if legacy.pending and legacy.tail is not None and not self.flags & NON_BLOCKING:
            return (legacy.tail,)
        return ()


class Event:
    """A point in a stream, once recorded."""

    __slots__ = ("context", "flags", "handle", "record")

    def __init__(self, context: Context, flags: int) -> None:
        self.context = context
        self.flags = flags
        self.handle = new_handle()
        self.record: EventRecord | None = None


def elapsed_ms(start: Event, end: Event) -> float:
    """Virtual milliseconds between two recorded points that have been reached."""
    if (start.flags | end.flags) & DISABLE_TIMING:
        raise DriverFailure(INVALID_HANDLE, "both events must be created with timing enabled")
    if start.record is None or end.record is None:
        raise DriverFailure(INVALID_HANDLE, "both events must have been recorded")
    if not (start.record.is_done and end.record.is_done):
        raise DriverFailure(NOT_READY, "an event has been recorded but not reached")
    return (end.record.time_us - start.record.time_us) / 1000.0
