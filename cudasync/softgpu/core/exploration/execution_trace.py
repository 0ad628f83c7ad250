"""Cellar. One run of an explored program: the names of its steps, and their order.

A step is named by the place of its stream among the streams that the run has used, and by its place
in the stream. The name is the same in every run of a program with the same calls. A step comes
after the steps that its stream, its waits and the default stream's rules require, and after those
that the enqueueing thread had waited for.
"""

from __future__ import annotations

from threading import get_ident
from typing import TYPE_CHECKING, Final

from cudasync.softgpu.core.driver_types.call_sites import (
    call_site,
    caller,
    is_thread_ours,
    is_through_engine,
)
from cudasync.softgpu.core.exploration.footprints import EVERYTHING, Names
from cudasync.softgpu.core.exploration.partial_order_reduction import Step
from cudasync.softgpu.core.streams.memory_operations import WaitValue
from cudasync.softgpu.core.streams.streams import NON_BLOCKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import FrameType

    from cudasync.softgpu.core.exploration.footprints import Footprint
    from cudasync.softgpu.core.exploration.partial_order_reduction import Key
    from cudasync.softgpu.core.machine import Machine
    from cudasync.softgpu.core.streams.commands import Command
    from cudasync.softgpu.core.streams.streams import Stream


# The advice that makes an engine repeatable.
_SERIAL: Final = ': use cs.Engine("serial"), or CUDASYNC_ENGINE=serial'
_ENGINES_THREADS: Final = (
    "threads of the engine wait for devices and issue ops, in an order that is chance" + _SERIAL
)


class Run:
    """The current run; the executor's lock is held in every call."""

    def __init__(self, machine: Machine) -> None:
        self._names = Names(machine)
        self._streams: dict[Stream, int] = {}
        self._lengths: dict[Stream, int] = {}
        self._keys: dict[Command, tuple[int, int]] = {}
        self._turns: dict[Command, int] = {}
        # The dependencies of each command.
        self._behind: dict[Command, list[Command]] = {}
        # The last step of a command, by its place in the run.
        self._places: dict[Command, int] = {}
        # By thread: the places of the steps that it has waited for, as bits.
        self._seen: dict[int, int] = {}
        self._seen_by: dict[Command, int] = {}
        self._count = 0
        # The number of the program's threads, and whether there are threads of the library.
        self._others = 0
        self._has_ours = False
        # The line that requested each command. By thread: the line of its current op, and the
        # caller at the op's beginning.
        self._sites: dict[Command, str] = {}
        self._asked: dict[int, tuple[str, FrameType | None]] = {}
        # By waiting command: the memory that it has read in vain.
        self._looked: dict[Command, Footprint] = {}
        # The reasons why the runs may miss some orders; empty if they miss none.
        self.doubts: dict[str, None] = {}

    # Calls of the program

    def enqueues(self, command: Command, waits: Iterable[Command]) -> None:
        """Note a command that is about to be enqueued."""
        stream = command.stream
        number = self._streams.setdefault(stream, len(self._streams) + 1)
        place = self._lengths[stream] = self._lengths.get(stream, 0) + 1
        self._keys[command] = number, place
        self._behind[command] = [*waits, *_tails(stream)]
        self._seen_by[command] = self._seen.get(self._caller(), 0)
        self._sites[command] = self._site()

    def forgets(self, command: Command) -> None:
        """Undo `enqueues` for a command that was not enqueued after all."""
        self._lengths[command.stream] -= 1

    def waited_for(self, targets: Iterable[Command]) -> None:
        """The calling thread has waited for these commands."""
        thread = self._caller()
        mask = self._seen.get(thread, 0)
        for target in targets:
            if target in self._places:
                mask |= 1 << self._places[target]
        self._seen[thread] = mask

    def polled(self) -> None:
        """The calling thread queried unfinished work, and another command was run."""
        self._seen[self._caller()] = (1 << self._count) - 1
        who = (
            "the engine queries" if is_through_engine() else f"the program queries at {call_site()}"
        )
        what = f"{who} whether work is done, and the answer depends on time"
        self.doubts[what + _SERIAL * is_through_engine()] = None

    def begins_op(self, site: str) -> None:
        """The calling thread's next commands were requested at `site`; "" stands for the call site.

        Commands that a function of the program enqueues have their call site there.
        """
        if site:
            self._asked[get_ident()] = site, caller()
        else:
            self._asked.pop(get_ident(), None)

    def _site(self) -> str:
        """The line that requested the command that the calling thread is about to enqueue."""
        site, above = self._asked.get(get_ident(), ("", None))
        return site if site and caller() is above else call_site()

    def _caller(self) -> int:
        thread = get_ident()
        if thread not in self._seen:
            self._seen[thread] = 0
            if is_thread_ours():
                self._has_ours = True
            else:
                self._others += 1
            if self._others > 1:
                self.doubts["several threads call the driver, in an order that is chance"] = None
            if self._has_ours and len(self._seen) > 1:
                self.doubts[_ENGINES_THREADS] = None
        return thread

    # Execution

    def key(self, command: Command) -> Key:
        """The name of the command's next step."""
        if command not in self._keys:
            self.enqueues(command, ())
        return (*self._keys[command], self._turns.get(command, 0))

    def site(self, command: Command) -> str:
        """The file and line that requested the command."""
        return self._sites.get(command, "unknown")

    def is_enabled(self, command: Command) -> bool:
        """False for a command that would wait for memory in vain."""
        if isinstance(command, WaitValue):
            return command.is_over()
        return command not in self._looked

    def begins(self, command: Command) -> None:
        """Note the dependencies of a command before its run, which clears them."""
        self._behind.setdefault(command, []).extend(command.awaited())

    def step(self, command: Command, *, is_over: bool, has_moved: bool, failed: bool) -> Step:
        """The step that `command` has just done, for the search."""
        footprint = EVERYTHING if failed else self._names.footprint(command.touched())
        for waiting, looked in list(self._looked.items()):
            if footprint.conflicts(looked):
                del self._looked[waiting]
        before = self._seen_by.get(command, 0)
        for other in self._behind.get(command, ()):
            if other in self._places:
                before |= 1 << self._places[other]
        if command in self._places:
            before |= 1 << self._places[command]
        key = self.key(command)
        self._places[command] = self._count
        self._count += 1
        self._turns[command] = self._turns.get(command, 0) + 1
        if not is_over and not has_moved:
            self._looked[command] = footprint
        return Step(key, footprint, before, isinstance(command, WaitValue))


def _tails(stream: Stream) -> list[Command]:
    """The commands that stream order puts before a command enqueued now, also finished ones."""
    found = [stream.tail]
    if stream.is_legacy:
        others = list(stream.context.streams)
        found += [other.tail for other in others if not other.flags & NON_BLOCKING]
    elif not stream.flags & NON_BLOCKING:
        found.append(stream.context.legacy.tail)
    return [command for command in found if command is not None]
