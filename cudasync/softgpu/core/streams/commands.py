"""Cellar. A command: one thing that a stream does, and what it waits for.

True of every command, under the executor's lock:
- `missing` counts the commands it depends on that are not done: its predecessor in the stream,
  and whatever it was told to wait for;
- it is ready exactly when `missing` is 0 and it is neither executing nor done;
- what it depends on was enqueued before it, so that waiting can not go in circles.
"""

from __future__ import annotations

from enum import Enum, unique
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple, cast

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cudasync.softgpu.core.checks.order import Stamp
    from cudasync.softgpu.core.streams.streams import Stream


# Most commands depend on the one before: a list is made when there is something in it.
NO_COMMANDS: Final = cast("list[Command]", ())


@unique
class Step(Enum):
    """What came of executing a command once."""

    DONE = "done"
    YIELDED = "yielded"
    """It waits for memory to change: execute it again later."""
    MOVED = "moved"
    """The same, but it got further: there is no need to wait for anybody."""
    ELSEWHERE = "elsewhere"
    """It goes on in another thread, which reports when it is done."""


class Touched(NamedTuple):
    """The memory that a command reads and writes, as (start, end) addresses."""

    reads: Sequence[tuple[int, int]] = ()
    writes: Sequence[tuple[int, int]] = ()


class Command:
    """One entry of a stream. Also its own ticket: an event is the command that it comes after."""

    __slots__ = (
        "after_us",
        "before",
        "dependencies",
        "dependents",
        "is_done",
        "is_wanted",
        "missing",
        "serial",
        "stamp",
        "stream",
        "time_us",
    )

    is_access: ClassVar[bool] = True
    """False where memory comes, goes or is waited for: what it `touched` is nobody's data."""

    serial: int
    """Place in the order of all calls; set when enqueued."""

    stamp: Stamp
    """When it is done by the clocks of a check; set while one is under way, and else never."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.serial = 0
        self.missing = 0
        # The one before it in the stream, while that is not done, and what else it depends on. All
        # are emptied when done, so that finished commands do not keep each other alive.
        self.before: Command | None = None
        self.dependencies = NO_COMMANDS
        self.dependents = NO_COMMANDS
        self.is_done = False
        self.is_wanted = False
        # The virtual time when the last thing it waited for was done, and when it was itself.
        self.after_us = 0.0
        self.time_us = 0.0

    def awaited(self) -> list[Command]:
        """What it depends on."""
        return self.dependencies if self.before is None else [self.before, *self.dependencies]

    def run(self) -> Step:
        """Do it, without the executor's lock; DriverFailure makes the context fail."""
        return Step.DONE

    @property
    def cost_us(self) -> float:
        """What it adds to its stream's virtual time."""
        return 0.0

    def touched(self) -> Touched | None:
        """What it reads and writes, asked once it has run; None if that may be anything."""
        return None

    @property
    def needs_commands(self) -> bool:
        """True if it waits now, for memory that no host writes: only a command can end that."""
        return False

    def describe(self) -> str:
        """What a deadlock report calls it."""
        return "a command"

    def awaits(self) -> str:
        """What a deadlock report says that it waits for, once all before it is done."""
        return "memory to change"

    def stop(self, reason: str) -> None:
        """It is to end now, if it is a kernel; from any thread."""

    def dropped(self) -> None:
        """Called when the context failed before the command could run."""


class EventRecord(Command):
    """The point in its stream that an event stands for."""

    __slots__ = ()

    def touched(self) -> Touched:
        return Touched()

    def describe(self) -> str:
        return "an event record"


class EventWait(Command):
    """Holds its stream until a recorded point, captured when the wait was called."""

    __slots__ = ()

    def touched(self) -> Touched:
        return Touched()

    def describe(self) -> str:
        return "a wait for an event"
