"""Cellar. Operations on streams and events: the verbs behind the driver's calls.

Nothing here runs a command by itself; `synchronize` and `query` let the executor do so.
"""

from __future__ import annotations

import threading
from functools import wraps
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from cudasync.softgpu.core.driver_types.handles import Handles
from cudasync.softgpu.core.driver_types.result_codes import (
    INVALID_HANDLE,
    INVALID_VALUE,
    NOT_SUPPORTED,
    STREAM_DETACHED,
    DriverFailure,
)
from cudasync.softgpu.core.graphs.stream_capture import Capture
from cudasync.softgpu.core.streams import interprocess_events
from cudasync.softgpu.core.streams.context_events import tails_of
from cudasync.softgpu.core.streams.host_functions import Callback, HostFunction
from cudasync.softgpu.core.streams.interprocess_events import SharedEvent, WaitsForProcess
from cudasync.softgpu.core.streams.memory_operations import WaitValue, WriteValue
from cudasync.softgpu.core.streams.streams import (
    DISABLE_TIMING,
    INTERPROCESS,
    NON_BLOCKING,
    PER_THREAD_HANDLE,
    Event,
    Stream,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from cudasync.softgpu.core.context import Context, Device
    from cudasync.softgpu.core.green_contexts.contexts import GreenContext
    from cudasync.softgpu.core.machine import Machine
    from cudasync.softgpu.core.streams.commands import Command


P = ParamSpec("P")
R = TypeVar("R")


class _Default(threading.local):
    """Which default stream the current call of a thread means."""

    is_per_thread = False


class StreamManager:
    """All streams and events of a machine."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._executor = machine.executor
        self._default = _Default()
        self._streams = self.streams = Handles[Stream]("stream")
        # Streams of destroyed green contexts: they can only be destroyed.
        self._detached: dict[int, Stream] = {}
        self._events = self.events = Handles[Event]("event")
        # For hot look-ups at every call, with `get` and `event` as the slow path.
        self.live_streams = self._streams.objects
        self.live_events = self._events.objects

    # Finding

    def per_thread(self, call: Callable[P, R]) -> Callable[P, R]:
        """Wrap a call in which stream 0 means the per-thread default stream."""

        @wraps(call)
        def called(*arguments: P.args, **named: P.kwargs) -> R:
            default = self._default
            before, default.is_per_thread = default.is_per_thread, True
            try:
                return call(*arguments, **named)
            finally:
                default.is_per_thread = before

        return called

    def is_per_thread(self) -> bool:
        """True within a call wrapped by `per_thread`."""
        return self._default.is_per_thread

    def get(self, handle: int) -> Stream:
        """The stream of a handle, default streams included, on a usable context."""
        stream = self._streams.objects.get(handle)
        if stream is None:
            if handle > PER_THREAD_HANDLE:
                if handle in self._detached:
                    raise DriverFailure(
                        STREAM_DETACHED, "the green context of the stream has been destroyed"
                    )
                return self._streams.get(handle)
            context = self._machine.context()
            if handle == PER_THREAD_HANDLE or (not handle and self._default.is_per_thread):
                return context.per_thread
            return context.legacy
        if stream.context.error:
            raise stream.context.failure()
        return stream

    def event(self, handle: int) -> Event:
        """The event of a handle, on a usable context."""
        event = self._events.objects.get(handle) or self._events.get(handle)
        if event.context.error:
            raise event.context.failure()
        return event

    # Streams

    def green_of(self, stream: Stream, handle: int) -> GreenContext | None:
        """The green context of a stream; for a default stream, the current one."""
        return stream.green if handle > PER_THREAD_HANDLE else self._machine.current_green()

    def create(self, flags: int, priority: int = 0, green: GreenContext | None = None) -> Stream:
        """A new stream of a green context, or of the current context."""
        if flags & ~1:
            raise DriverFailure(INVALID_VALUE, f"unknown stream flags {flags:#x}")
        if green is None:
            context, green = self._machine.context(), self._machine.current_green()
        else:
            context = green.primary
            self._machine.check(context)
        stream = Stream(context, flags=flags, priority=priority, green=green)
        context.enter(stream)
        if green is not None and green.gates:
            stream.begin_behind(green.gates[0])
        self._streams.add(stream.handle, stream)
        return stream

    def detach(self, stream: Stream) -> None:
        """The stream's green context ends; the stream's pending work is still done."""
        self._machine.captures.leave(stream)
        self._streams.discard(stream.handle)
        self._detached[stream.handle] = stream
        self._close(stream)

    def destroy(self, handle: int) -> None:
        """End the stream; its pending work is still done: at once if it can run, else later."""
        if self._detached.pop(handle, None) is not None:
            return
        stream = self.get(handle)
        if handle <= PER_THREAD_HANDLE:
            raise DriverFailure(INVALID_HANDLE, "a default stream cannot be destroyed")
        if self._executor.deferred.put_off(lambda: self.destroy(handle)):
            return
        self._streams.remove(handle)
        self._machine.captures.leave(stream)
        self._close(stream)

    def _close(self, stream: Stream) -> None:
        tail = self._executor.tail(stream)
        stream.is_closed = True
        if tail is not None:
            self._executor.finish_nowait([tail])
        with self._executor.lock:
            if not stream.pending:
                stream.context.streams.pop(stream, None)

    def query(self, stream: Stream) -> bool:
        """True if all work enqueued so far is done; if not, the call makes some progress."""
        if stream.capture is not None:
            stream.capture.refuse(f"a query of {stream.name}")
        captures = self._machine.captures
        if captures.active:
            captures.refuse_unsafe("a query of a stream")
        if stream.is_legacy:
            done = all(self._executor.query(command) for command in self._ends(stream))
        else:
            done = self._executor.query(
                self._executor.tail(stream) if stream.waits else stream.tail
            )
        if stream.context.error:
            raise stream.context.failure()
        if done and stream.floor_us:
            self._executor.see(stream.floor_us)
        return done

    def synchronize(self, stream: Stream) -> None:
        """Wait for all work enqueued so far."""
        if stream.capture is not None:
            stream.capture.refuse(f"a wait for {stream.name}")
        captures = self._machine.captures
        if captures.active:
            captures.refuse_unsafe("a wait for a stream")
        self._wait(self._ends(stream), stream.context)
        self._executor.see(stream.floor_us)

    def come_to(self, stream: Stream) -> None:
        """Wait for all work enqueued so far, on behalf of a call that then enqueues more."""
        self._wait(self._ends(stream), stream.context)

    def synchronize_context(self, context: Context, green: GreenContext | None = None) -> None:
        """Wait for the work of all streams of a context, or of its green context."""
        self._wait(tails_of(self._executor, context, green), context)
        if green is None:
            self._executor.context_is_idle(context)

    @staticmethod
    def beside(context: Context) -> Stream:
        """A stream that no program sees; it goes when it is empty."""
        stream = Stream(context, flags=NON_BLOCKING, name="the context")
        stream.is_closed = True
        context.enter(stream)
        return stream

    def settle(self, device: Device) -> None:
        """Wait for all work on a device, in any state of its contexts."""
        for context in self._machine.contexts:
            if context.device is device:
                self._executor.synchronize(self._executor.tails(context))
                self._executor.context_is_idle(context)

    def finish(self, command: Command) -> None:
        """Wait for one command."""
        self._wait([command], command.stream.context)

    def _wait(self, commands: list[Command], context: Context) -> None:
        self._executor.synchronize(commands)
        if context.error:
            raise context.failure()

    def launch_host(self, stream: Stream, function: int, user_data: int) -> None:
        """Enqueue the call of a native function."""
        if not function:
            raise DriverFailure(INVALID_VALUE, "the pointer to the host function is null")
        self._executor.enqueue(
            HostFunction(stream, function, user_data, self._machine.host_functions)
        )

    def add_callback(self, stream: Stream, function: int, user_data: int) -> None:
        """Enqueue the call of a native callback of the older kind."""
        if not function:
            raise DriverFailure(INVALID_VALUE, "the callback is null")
        self._executor.enqueue(Callback(stream, function, user_data, self._machine.host_functions))

    def wait_value(self, stream: Stream, address: int, value: int, flags: int, size: int) -> None:
        """Hold the stream until a word in memory fulfils the comparison in `flags` with `value`."""
        place = self._machine.memory.place(address, size)
        self._executor.enqueue(WaitValue(stream, place, value, flags, size))

    def write_value(self, stream: Stream, address: int, value: int, size: int) -> None:
        """Enqueue the write of a word."""
        place = self._machine.memory.place(address, size)
        self._executor.enqueue(WriteValue(stream, place, value, size))

    # Events

    def create_event(self, flags: int) -> Event:
        """A new event of the current context."""
        if flags & ~7:
            raise DriverFailure(INVALID_VALUE, f"unknown event flags {flags:#x}")
        if flags & INTERPROCESS and not flags & DISABLE_TIMING:
            raise DriverFailure(INVALID_VALUE, "an INTERPROCESS event needs DISABLE_TIMING")
        context = self._machine.context()
        event = Event(context, flags)
        if flags & INTERPROCESS:
            event.shared = SharedEvent.make()
        return self._enter_event(event)

    def event_handle(self, event: Event) -> bytes:
        """cuIpcGetEventHandle; DriverFailure for an event without INTERPROCESS."""
        if event.shared is None or event.shared.is_foreign:
            raise DriverFailure(
                INVALID_VALUE, "the event was not created with INTERPROCESS in this process"
            )
        self._machine.progress.begin()
        return event.shared.handle(event.context.device.ordinal)

    def open_event(self, handle: bytes) -> Event:
        """cuIpcOpenEventHandle."""
        context = self._machine.context()
        event = Event(context, DISABLE_TIMING | INTERPROCESS)
        event.shared, ordinal = SharedEvent.open(handle)
        self._machine.progress.begin()
        self._machine.peers.check(context.device, self._machine.device(ordinal))
        return self._enter_event(event)

    def _enter_event(self, event: Event) -> Event:
        context = event.context
        context.events.add(event)
        self._events.add(event.handle, event)
        return event

    def destroy_event(self, handle: int) -> None:
        """End the event; earlier waits keep their record."""
        self.event(handle)
        event = self._events.remove(handle)
        event.context.events.discard(event)
        if event.shared is not None:
            event.shared.close()

    def record(self, event: Event, stream: Stream, flags: int = 0) -> None:
        """Let the event stand for this point of the stream."""
        if event.context is not stream.context:
            raise DriverFailure(INVALID_HANDLE, "the event and the stream differ in context")
        if event.shared is not None:
            self._no_capture(stream, event)
            interprocess_events.record(self._executor, event.shared, stream)
            return
        if isinstance(stream.capture, Capture):
            stream.capture.record(event, stream, flags)
            return
        if flags:
            raise DriverFailure(INVALID_VALUE, "EXTERNAL is for streams that are captured")
        self._executor.record(event, stream)

    def wait(self, stream: Stream, event: Event, flags: int = 0) -> None:
        """Hold the stream until the event's latest record so far, on any device."""
        if event.shared is not None:
            self._no_capture(stream, event)
            self._await(stream, event.shared)
            return
        if (stream.capture is not None or event.captured is not None) and (
            self._machine.captures.wait(stream, event, flags)
        ):
            return
        if flags:
            raise DriverFailure(INVALID_VALUE, "EXTERNAL is for streams that are captured")
        self._executor.hold(stream, event)

    def _no_capture(self, stream: Stream, event: Event) -> None:
        if stream.capture is not None:
            raise DriverFailure(NOT_SUPPORTED, "an INTERPROCESS event cannot be captured")
        self._machine.check(event.context)

    def _await(self, stream: Stream, shared: SharedEvent) -> Command | None:
        """Hold a stream until the latest record; None if the stream need not wait."""
        number = shared.read()[0]
        if not number or shared.is_reached(number):
            return None
        waits = WaitsForProcess(stream, shared, number)
        self._executor.enqueue(waits)
        return waits

    def query_event(self, event: Event) -> bool:
        """True if the latest record is reached, or there is none."""
        if event.shared is not None:
            recorded = event.shared.read()[0]
            return not recorded or event.shared.is_reached(recorded)
        captures = self._machine.captures
        if event.captured is not None or captures.active:
            captures.refuse_event(event, "a query")
        done = self._executor.query(event.record)
        if event.context.error:
            raise event.context.failure()
        if done:
            self._executor.see(event.since_us)
        return done

    def synchronize_event(self, event: Event) -> None:
        """Wait until the latest record is reached."""
        if event.shared is not None:
            waits = self._await(self.beside(event.context), event.shared)
            if waits is not None:
                self.finish(waits)
            return
        self._machine.captures.refuse_event(event, "a wait")
        if event.record is not None:
            self.finish(event.record)
        self._executor.see(event.since_us)

    def forget(self, context: Context) -> None:
        """Drop the streams and events of a context that ends."""
        for stream in list(context.streams):
            self._machine.captures.leave(stream)
            stream.is_closed = True
            self._streams.discard(stream.handle)
        for event in list(context.events):
            self._events.discard(event.handle)
            if event.shared is not None:
                event.shared.close()

    def _ends(self, stream: Stream) -> list[Command]:
        """The commands that must be done for the stream to be idle.

        The legacy default stream is idle only when the streams that it joins are idle.
        """
        tail = self._executor.tail(stream)
        ends = [] if tail is None else [tail]
        return [*ends, *stream.implicit_waits()] if stream.is_legacy else ends
