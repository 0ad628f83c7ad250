"""Cellar. Commands: the entries of streams, and their dependencies.

True of every command, under the executor's lock:
- `missing` counts its unfinished dependencies: its predecessor in the stream, and the commands
  that it was told to wait for;
- it is ready exactly when `missing` is 0 and it is neither executing nor done;
- its dependencies were enqueued before it, so that waits cannot form a cycle.
"""

from __future__ import annotations

from enum import Enum, unique
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple, cast

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cudasync.softgpu.core.checks.order import Stamp
    from cudasync.softgpu.core.streams.streams import Stream


# Most commands depend only on their predecessor, so a list is made only if it has an entry.
NO_COMMANDS: Final = cast("list[Command]", ())


@unique
class Step(Enum):
    """The outcome of executing a command once."""

    DONE = "done"
    YIELDED = "yielded"
    """The command waits for memory to change: execute it again later."""
    MOVED = "moved"
    """The same, but the command has made progress: execute it again without a pause."""
    ELSEWHERE = "elsewhere"
    """The command goes on in another thread, which reports its end."""


class Touched(NamedTuple):
    """The memory that a command reads and writes, as (start, end) addresses."""

    reads: Sequence[tuple[int, int]] = ()
    writes: Sequence[tuple[int, int]] = ()


class Command:
    """One entry of a stream. An event is represented by the command that it comes after."""

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
    """False if memory appears, vanishes or is waited for: `touched` is then not data access."""

    serial: int
    """The place in the order of all calls; set when the command is enqueued."""

    stamp: Stamp
    """The command's time by the vector clocks of a check; set only during a check."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.serial = 0
        self.missing = 0
        # The unfinished predecessor in the stream, and the other dependencies. All are cleared
        # when the command is done, so that finished commands do not keep each other alive.
        self.before: Command | None = None
        self.dependencies = NO_COMMANDS
        self.dependents = NO_COMMANDS
        self.is_done = False
        self.is_wanted = False
        # The virtual times at which its last dependency, and the command itself, were done.
        self.after_us = 0.0
        self.time_us = 0.0

    def awaited(self) -> list[Command]:
        """The command's dependencies."""
        return self.dependencies if self.before is None else [self.before, *self.dependencies]

    def run(self) -> Step:
        """Execute the command, without the executor's lock; DriverFailure fails the context."""
        return Step.DONE

    @property
    def cost_us(self) -> float:
        """The time that the command adds to its stream's virtual time."""
        return 0.0

    def touched(self) -> Touched | None:
        """The memory it read and wrote, valid after its run; None if unknown."""
        return None

    @property
    def needs_commands(self) -> bool:
        """True if it now waits for memory that no host writes: only a command can end the wait."""
        return False

    def describe(self) -> str:
        """The command's name in a deadlock report."""
        return "a command"

    def awaits(self) -> str:
        """The reason that a deadlock report gives for its wait, once its dependencies are done."""
        return "memory to change"

    def stop(self, reason: str) -> None:
        """End it now, if it is a kernel; callable from any thread."""

    def dropped(self) -> None:
        """Called if the context failed before the command could run."""


class EventRecord(Command):
    """A point in a stream, which an event stands for."""

    __slots__ = ()

    def touched(self) -> Touched:
        return Touched()

    def describe(self) -> str:
        return "an event record"


class EventWait(Command):
    """Holds its stream until a recorded point, taken when the wait was called."""

    __slots__ = ()

    def touched(self) -> Touched:
        return Touched()

    def describe(self) -> str:
        return "a wait for an event"
