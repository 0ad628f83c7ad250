"""Cellar. A command: one thing that a stream does, and what it waits for.

True of every command, under the executor's lock:
- `missing` counts the commands it depends on that are not done: its predecessor in the stream,
  and whatever it was told to wait for;
- it is ready exactly when `missing` is 0 and it is neither executing nor done;
- what it depends on was enqueued before it, so that waiting can not go in circles.
"""

from __future__ import annotations

from enum import Enum, unique
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cudasync.softgpu.core.streams import Stream


@unique
class Step(Enum):
    """What came of executing a command once."""

    DONE = "done"
    YIELDED = "yielded"
    """It waits for memory to change: execute it again later."""
    ELSEWHERE = "elsewhere"
    """It goes on in another thread, which reports when it is done."""


class Command:
    """One entry of a stream. Also its own ticket: an event is the last command that records it."""

    __slots__ = (
        "after_us",
        "dependencies",
        "dependents",
        "is_done",
        "is_wanted",
        "missing",
        "serial",
        "stream",
        "time_us",
    )

    serial: int
    """Place in the order of all calls; set when enqueued."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.serial = 0
        self.missing = 0
        # Both are emptied when done, so that finished commands do not keep each other alive.
        self.dependencies: list[Command] = []
        self.dependents: list[Command] = []
        self.is_done = False
        self.is_wanted = False
        # The virtual time when the last thing it waited for was done, and when it was itself.
        self.after_us = 0.0
        self.time_us = 0.0

    def run(self) -> Step:
        """Do it, without the executor's lock; DriverFailure makes the context fail."""
        return Step.DONE

    @property
    def cost_us(self) -> float:
        """What it adds to its stream's virtual time."""
        return 0.0

    def describe(self) -> str:
        """What a deadlock report calls it."""
        return "a command"

    def dropped(self) -> None:
        """Called when the context failed before the command could run."""


class EventRecord(Command):
    """The point in its stream that an event stands for."""

    __slots__ = ()

    def describe(self) -> str:
        return "an event record"


class EventWait(Command):
    """Holds its stream until a recorded point, captured when the wait was called."""

    __slots__ = ()

    def describe(self) -> str:
        return "a wait for an event"
