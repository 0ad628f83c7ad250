"""Cellar. One run of an explored program: its steps by name, and what came before them.

A step is named by the place of its stream among those that the run has used, and by its place in
that stream: the same in every run of a program that does the same calls. What must come before a
step is what its stream, its waits and the rules of the default stream say, and what the thread that
enqueued it had waited for until then.
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


# What makes an engine repeatable.
_SERIAL: Final = '; with cs.Engine("serial"), or CUDASYNC_ENGINE=serial, it does not'
_ENGINES_THREADS: Final = (
    "the engine waits for devices, and issues ops that come after host ops, on threads of its own, "
    "and who is first is chance" + _SERIAL
)


class Run:
    """What is known of the run under way; the executor's lock is held in every call."""

    def __init__(self, machine: Machine) -> None:
        self._names = Names(machine)
        self._streams: dict[Stream, int] = {}
        self._lengths: dict[Stream, int] = {}
        self._keys: dict[Command, tuple[int, int]] = {}
        self._turns: dict[Command, int] = {}
        # The commands before each.
        self._behind: dict[Command, list[Command]] = {}
        # The last step of a command, by its place in the run.
        self._places: dict[Command, int] = {}
        # By thread: what it has waited for, as bits.
        self._seen: dict[int, int] = {}
        self._seen_by: dict[Command, int] = {}
        self._count = 0
        # How many of these threads are the program's, and whether the library has started some.
        self._others = 0
        self._has_ours = False
        # Where the program asked for each command; by thread, for which op it calls the driver now,
        # and what called it then.
        self._sites: dict[Command, str] = {}
        self._asked: dict[int, tuple[str, FrameType | None]] = {}
        # What commands that wait for memory have looked at in vain.
        self._looked: dict[Command, Footprint] = {}
        # Why there may be orders that no run will show; empty if there are none.
        self.doubts: dict[str, None] = {}

    # What the program does

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
        """It was not enqueued after all."""
        self._lengths[command.stream] -= 1

    def waited_for(self, targets: Iterable[Command]) -> None:
        """The calling thread knows that these are done."""
        thread = self._caller()
        mask = self._seen.get(thread, 0)
        for target in targets:
            if target in self._places:
                mask |= 1 << self._places[target]
        self._seen[thread] = mask

    def polled(self) -> None:
        """The calling thread asked for what was not done, and something else was done instead."""
        self._seen[self._caller()] = (1 << self._count) - 1
        who = "the engine asks" if is_through_engine() else f"it asks at {call_site()}"
        what = f"{who} whether work is done, and when that is could be any time"
        self.doubts[what + _SERIAL * is_through_engine()] = None

    def begins_op(self, site: str) -> None:
        """What the calling thread enqueues now was asked for at `site`, "" for where it is called.

        But what a function of the program's enqueues, which is called from now on, was so there.
        """
        if site:
            self._asked[get_ident()] = site, caller()
        else:
            self._asked.pop(get_ident(), None)

    def _site(self) -> str:
        """Where the program asked for what the calling thread is about to enqueue."""
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
                self.doubts["several threads call the driver, and who is first is chance"] = None
            if self._has_ours and len(self._seen) > 1:
                self.doubts[_ENGINES_THREADS] = None
        return thread

    # What is done of it

    def key(self, command: Command) -> Key:
        """The name of the command's next step."""
        if command not in self._keys:
            self.enqueues(command, ())
        return (*self._keys[command], self._turns.get(command, 0))

    def site(self, command: Command) -> str:
        """Where the program asked for it: file and line."""
        return self._sites.get(command, "unknown")

    def is_enabled(self, command: Command) -> bool:
        """False for what waits for memory, where it is known that it would do so in vain."""
        if isinstance(command, WaitValue):
            return command.is_over()
        return command not in self._looked

    def begins(self, command: Command) -> None:
        """The command is about to run; afterwards it has forgotten what it depended on."""
        self._behind.setdefault(command, []).extend(command.awaited())

    def step(self, command: Command, *, is_over: bool, has_moved: bool, failed: bool) -> Step:
        """What `command` has just done, as the search sees it."""
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
    """What the order of streams puts before a command enqueued now, be it done or not."""
    found = [stream.tail]
    if stream.is_legacy:
        others = list(stream.context.streams)
        found += [other.tail for other in others if not other.flags & NON_BLOCKING]
    elif not stream.flags & NON_BLOCKING:
        found.append(stream.context.legacy.tail)
    return [command for command in found if command is not None]
