"""Cellar. What can be done with streams and events: the verbs behind the driver's calls.

Nothing here runs a command by itself; `synchronize` and `query` let the executor do it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.softgpu.core.commands import EventRecord, EventWait
from cudasync.softgpu.core.handles import Handles
from cudasync.softgpu.core.host_functions import Callback, HostFunction
from cudasync.softgpu.core.results import INVALID_HANDLE, INVALID_VALUE, DriverFailure
from cudasync.softgpu.core.streams import PER_THREAD_HANDLE, Event, Stream
from cudasync.softgpu.core.wait_values import WaitValue, WriteValue

if TYPE_CHECKING:
    from cudasync.softgpu.core.commands import Command
    from cudasync.softgpu.core.context import Context
    from cudasync.softgpu.core.machine import Machine


class StreamManager:
    """All streams and events of a machine."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._executor = machine.executor
        self._streams: Handles[Stream] = Handles("stream")
        self._events: Handles[Event] = Handles("event")

    # Finding

    def get(self, handle: int) -> Stream:
        """The stream a handle names, default streams included, on a context fit for work."""
        if handle > PER_THREAD_HANDLE:
            stream = self._streams.get(handle)
            if stream.context.error:
                raise stream.context.failure()
            return stream
        context = self._machine.context()
        return context.per_thread if handle == PER_THREAD_HANDLE else context.legacy

    def event(self, handle: int) -> Event:
        """The event a handle names, on a context fit for work."""
        event = self._events.get(handle)
        if event.context.error:
            raise event.context.failure()
        return event

    # Streams

    def create(self, flags: int, priority: int = 0) -> Stream:
        """A stream of the current context."""
        if flags & ~1:
            raise DriverFailure(INVALID_VALUE, f"unknown stream flags {flags:#x}")
        context = self._machine.context()
        stream = Stream(context, flags=flags, priority=priority)
        context.streams[stream] = None
        self._streams.add(stream.handle, stream)
        return stream

    def destroy(self, handle: int) -> None:
        """End the stream; what is in it is still done, the more patient of it later."""
        stream = self.get(handle)
        if handle <= PER_THREAD_HANDLE:
            raise DriverFailure(INVALID_HANDLE, "a default stream can not be destroyed")
        if self._executor.deferred.put_off(lambda: self.destroy(handle)):
            return
        self._streams.remove(handle)
        stream.is_closed = True
        if stream.tail is not None:
            self._executor.finish_nowait([stream.tail])
        with self._executor.lock:
            if not stream.pending:
                stream.context.streams.pop(stream, None)

    def query(self, stream: Stream) -> bool:
        """True if everything enqueued so far is done; else some progress was made."""
        done = all(self._executor.query(command) for command in _ends(stream))
        if stream.context.error:
            raise stream.context.failure()
        return done

    def synchronize(self, stream: Stream) -> None:
        """Wait for everything enqueued so far."""
        self._wait(_ends(stream), stream.context)

    def synchronize_context(self, context: Context) -> None:
        """Wait for everything enqueued on any stream of a context."""
        tails = [s.tail for s in list(context.streams) if s.tail is not None]
        self._wait(tails, context)

    def finish(self, command: Command) -> None:
        """Wait for one command."""
        self._wait([command], command.stream.context)

    def _wait(self, commands: list[Command], context: Context) -> None:
        self._executor.synchronize(commands)
        if context.error:
            raise context.failure()

    def launch_host(self, stream: Stream, function: int, user_data: int) -> None:
        """Call a native function when the stream gets there."""
        if not function:
            raise DriverFailure(INVALID_VALUE, "the host function is null")
        self._executor.enqueue(
            HostFunction(stream, function, user_data, self._machine.host_functions)
        )

    def add_callback(self, stream: Stream, function: int, user_data: int) -> None:
        """Call a native callback of the older kind when the stream gets there."""
        if not function:
            raise DriverFailure(INVALID_VALUE, "the callback is null")
        self._executor.enqueue(Callback(stream, function, user_data, self._machine.host_functions))

    def wait_value(self, stream: Stream, address: int, value: int, flags: int, size: int) -> None:
        """Hold the stream until a word in memory compares with `value` as `flags` say."""
        place = self._machine.memory.place(address, size)
        self._executor.enqueue(WaitValue(stream, place, value, flags, size))

    def write_value(self, stream: Stream, address: int, value: int, size: int) -> None:
        """Write a word when the stream gets there."""
        place = self._machine.memory.place(address, size)
        self._executor.enqueue(WriteValue(stream, place, value, size))

    # Events

    def create_event(self, flags: int) -> Event:
        """An event of the current context."""
        if flags & ~7:
            raise DriverFailure(INVALID_VALUE, f"unknown event flags {flags:#x}")
        context = self._machine.context()
        event = Event(context, flags)
        context.events.add(event)
        self._events.add(event.handle, event)
        return event

    def destroy_event(self, handle: int) -> None:
        """End the event; waits that were called keep their record."""
        self.event(handle)
        event = self._events.remove(handle)
        event.context.events.discard(event)

    def record(self, event: Event, stream: Stream) -> None:
        """Let the event stand for this point of the stream."""
        if event.context is not stream.context:
            raise DriverFailure(INVALID_HANDLE, "the event and the stream differ in context")
        record = EventRecord(stream)
        self._executor.enqueue(record)
        event.record = record

    def wait(self, stream: Stream, event: Event) -> None:
        """Hold the stream until the event's latest record so far, on whatever device."""
        record = event.record
        if record is not None:
            self._executor.enqueue(EventWait(stream), (record,))

    def query_event(self, event: Event) -> bool:
        """True if the latest record is reached or there is none."""
        done = self._executor.query(event.record)
        if event.context.error:
            raise event.context.failure()
        return done

    def synchronize_event(self, event: Event) -> None:
        """Wait until the latest record is reached."""
        if event.record is not None:
            self.finish(event.record)

    def forget(self, context: Context) -> None:
        """Drop the streams and events of a context that ends."""
        for stream in list(context.streams):
            stream.is_closed = True
            self._streams.discard(stream.handle)
        for event in list(context.events):
            self._events.discard(event.handle)


def _ends(stream: Stream) -> list[Command]:
    """What has to be done for the stream to be idle.

    The legacy default stream is not idle before the streams that it would wait for are.
    """
    ends = [] if stream.tail is None else [stream.tail]
    return [*ends, *stream.implicit_waits()] if stream.is_legacy else ends
