"""Cellar. Dependencies of commands: by stream, by events, and by the default stream's rules.

True whenever the lock is free:
- a command's `missing` is the number of its unfinished dependencies;
- `_ready` holds exactly the commands that may run, by age;
- a finished command has released all its dependents.
"""

from __future__ import annotations

from bisect import insort
from itertools import count
from operator import attrgetter
from typing import TYPE_CHECKING

from cudasync.locks import Lock
from cudasync.softgpu.core.driver_types.result_codes import NOT_PERMITTED, DriverFailure
from cudasync.softgpu.core.streams.commands import NO_COMMANDS, EventRecord, EventWait
from cudasync.softgpu.core.streams.deadlock_detection import want
from cudasync.softgpu.core.streams.streams import NON_BLOCKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from cudasync.softgpu.core.context import Context
    from cudasync.softgpu.core.launch.declared_accesses import Expectations
    from cudasync.softgpu.core.streams.commands import Command
    from cudasync.softgpu.core.streams.streams import Event, Stream

_BY_AGE = attrgetter("serial")


class Chains:
    """The commands of all contexts; subclasses execute them."""

    def __init__(self) -> None:
        self._make_lock()
        self._serials = count(1)
        self._ready: list[Command] = []
        # The latest virtual time that a caller has seen pass: commands enqueued later cannot
        # start before it.
        self._seen_us = 0.0
        # In checked mode: compares commands with the declarations of their ops.
        self.expectations: Expectations | None = None

    def _make_lock(self) -> None:
        # The lock protects commands and their chains, streams' tails and clocks, `_seen_us`,
        # allocation tables, arenas and quarantine, pools, advice, the use counts of graphs' memory
        # and of contexts. It is held for a few steps of bookkeeping, never while a command runs,
        # memory is filled or code is compiled. The lock of graphs is taken before this lock.
        # Reentrant, so that a thread can tell that it holds it: finalisers are deferred there.
        self.lock = Lock()
        self._owns_lock: Callable[[], bool] = self.lock.is_held_here

    # Enqueueing

    def enqueue(self, command: Command, waits: Iterable[Command] = ()) -> None:
        """Append to the command's stream, to run after the stream's tail and after `waits`.

        Where the stream is captured, the command is given to the capture instead.
        """
        stream = command.stream
        if stream.capture is not None:
            stream.capture.take(command)
            return
        if self._owns_lock():
            raise DriverFailure(NOT_PERMITTED, "a finaliser must not enqueue work")
        if self.expectations is not None:
            self.expectations.hold(command)
        # Like `with self.lock`, at half its cost, which is half of a call's cost. An interrupt may
        # come behind `acquire`.
        lock = self.lock
        try:
            lock.acquire()
            context = stream.context
            if context.error:
                raise context.failure()
            command.serial = next(self._serials)
            command.after_us = self._seen_us
            if stream.floor_us > command.after_us:
                command.after_us = stream.floor_us
            tail = stream.tail
            missing = 0
            if tail is not None and not tail.is_done:
                if tail.stream is stream:
                    command.before = tail
                    missing = 1
                else:
                    self._depend(command, tail)
            for other in waits:
                self._depend(command, other)
            awaited = list(stream.waits) if stream.waits else ()
            for other in awaited:
                self._depend(command, other)
            if stream.is_legacy or context.legacy.pending:
                for other in stream.implicit_waits():
                    self._depend(command, other)
            stream.tail = command
            stream.pending.append(command)
            for other in awaited:
                stream.waits.pop(other, None)
            missing += len(command.dependencies)
            if missing:
                command.missing = missing
            else:
                self._ready.append(command)  # The youngest command, so the order by age holds.
            lock.release()
        except BaseException:
            if self._owns_lock():
                lock.release()
            raise

    def note_node(self, command: Command, site: str) -> None:
        """A command comes from a graph node made at this line; a hook for checks."""

    def also_wait(self, command: Command, others: Iterable[Command]) -> None:
        """Add dependencies to an enqueued command, which must not be ready yet."""
        with self.lock:
            pending = [other for other in others if not other.is_done]
            for other in pending:
                self._depend(command, other)
            command.missing += len(pending)
            if command.is_wanted:
                want(pending)

    @staticmethod
    def _depend(command: Command, other: Command) -> None:
        if other.is_done:
            command.after_us = max(command.after_us, other.time_us)
        else:
            if other.dependents:
                other.dependents.append(command)
            else:
                other.dependents = [command]
            if command.dependencies:
                command.dependencies.append(other)
            else:
                command.dependencies = [other]

    # Events: no commands of their own if the stream's commands suffice

    def record(self, event: Event, stream: Stream) -> None:
        """Let an event stand for its stream's work so far; the stream is not captured."""
        tail = stream.tail
        if stream.is_legacy or stream.waits or stream.context.legacy.pending:
            self._record_by_command(event, stream)
            return
        event.record = None if tail is None or tail.is_done else tail
        event.since_us = self.stream_us(stream)
        event.captured = None

    def _record_by_command(self, event: Event, stream: Stream) -> None:
        record = EventRecord(stream)
        self.enqueue(record)
        event.record = record
        event.since_us = 0.0
        event.captured = None

    def see(self, time_us: float) -> None:
        """A caller has seen this time pass: commands enqueued from now on start later."""
        if time_us > self._seen_us:
            with self.lock:
                self._seen_us = max(self._seen_us, time_us)

    def stream_us(self, stream: Stream) -> float:
        """The time at which an empty stream would start a command enqueued now."""
        return max(self._seen_us, stream.time_us, stream.floor_us)

    def hold(self, stream: Stream, event: Event) -> None:
        """Let later commands of a stream wait for an event's latest record."""
        record = event.record
        if record is None or record.is_done:
            reached_us = event.reached_us()
            if reached_us > stream.floor_us:
                with self.lock:
                    stream.floor_us = max(stream.floor_us, reached_us)
        elif stream.is_legacy:
            self.enqueue(EventWait(stream), (record,))
        elif record.stream is not stream:
            stream.waits[record] = None
        legacy = stream.context.legacy
        if legacy.pending and not (stream.is_legacy or stream.flags & NON_BLOCKING):
            # Like any command, a wait joins the earlier work of the default stream.
            tail = legacy.tail
            if tail is not None:
                stream.waits[tail] = None

    def tail(self, stream: Stream) -> Command | None:
        """The last command of a stream; kept waits become a command first."""
        if stream.waits and stream.capture is None and not stream.context.error:
            self.enqueue(EventWait(stream))
        return stream.tail

    def tails(self, context: Context) -> list[Command]:
        """The commands that must be done for a context to be idle."""
        tails = [self.tail(stream) for stream in list(context.streams)]
        return [tail for tail in tails if tail is not None]

    def context_is_idle(self, context: Context) -> None:
        """A caller has waited for all work of a context; a hook for checks."""

    # Done

    def _release(self, command: Command) -> None:
        command.is_done = True
        pending = command.stream.pending
        if pending and pending[0].before is command:
            # The stream's clock already covers the dependency in the stream.
            pending[0].before = None
            self._need_less(pending[0])
        for dependent in command.dependents:
            dependent.after_us = max(dependent.after_us, command.time_us)
            self._need_less(dependent)
        command.before = None
        command.dependents = command.dependencies = NO_COMMANDS

    def _need_less(self, command: Command) -> None:
        command.missing -= 1
        if not command.missing and not command.is_done:
            if self._ready:
                insort(self._ready, command, key=_BY_AGE)
            else:
                self._ready.append(command)
