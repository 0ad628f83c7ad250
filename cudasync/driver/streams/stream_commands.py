"""Floor 1. Commands of a stream: events, waits, and calls of native functions.

All functions here are methods of `Stream`. A record of an event, or a wait for one, costs one
driver call; the fast path is for handles of the current context.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cuda.bindings import driver

from cudasync.driver.context import here
from cudasync.driver.result import failure
from cudasync.driver.streams.event import Event
from cudasync.driver.streams.host_function import launch_host_function, refuse_python

if TYPE_CHECKING:
    from cudasync.driver.streams.stream import Stream, StreamLike


def record(self: Stream, event: Event | None = None) -> Event:
    """Record `event` (or a new one) behind all work enqueued so far, and return it.

    Returns at once. Raises ValueError for an event of another device. (cuEventRecord)
    """
    if event is None:
        event = Event(self.device)
    owned, theirs = self._owned, event.owned
    if (
        owned is None
        or not here.token is owned.token is theirs.token is owned.context.token
        or (onto := owned.raw) is None
        or (raw := theirs.raw) is None
    ):
        onto, raw = self.enter(), event.get()
        if self.device is not event.device:
            raise ValueError(
                f"an event of {event.device!r} cannot be recorded on {self.device!r}: "
                "make the event there"
            )
    code = driver.cuEventRecord(raw, onto)[0]
    if code:
        raise failure(code, "cuEventRecord")
    event.was_recorded = True
    return event


def record_reused(self: Stream, event: Event) -> None:
    """`record` at less cost, for an event that the caller reuses and keeps open.

    Event and stream must be of one device, made in the same life of its context. The driver knows
    the context from the handles. If the driver refuses, `record` makes the context current on this
    thread, and raises the error if there is another cause. (cuEventRecord)
    """
    owned = self._owned
    if (
        owned is None
        # None would be the default stream.
        or (onto := owned.raw) is None
        or owned.token is not owned.context.token
        or driver.cuEventRecord(event.owned.raw, onto)[0]
    ):
        self.record(event)
    else:
        event.was_recorded = True


def wait(self: Stream, other: Event | StreamLike) -> None:
    """Make later work here wait for an event's last recording, or for a stream's work so far.

    Returns at once; the host does not wait. The event or stream may be of another device. An event
    that was never recorded is not waited for. (cuStreamWaitEvent)
    """
    if not isinstance(other, Event):
        from cudasync.driver.streams.chosen_stream import as_stream

        other = as_stream(other, self.device)._record_tail()
    owned, theirs = self._owned, other.owned
    onto = raw = None
    if owned is not None and here.token is owned.token is owned.context.token:
        onto = owned.raw
        # The event may be of another device.
        if theirs.token is theirs.context.token:
            raw = theirs.raw
    if onto is None or raw is None:
        onto, raw = self.enter(), other.get()
    code = driver.cuStreamWaitEvent(onto, raw, 0)[0]
    if code:
        raise failure(code, "cuStreamWaitEvent")


def record_tail(self: Stream) -> Event:
    """The stream's own event, recorded behind its work so far.

    Threads may share the event: a recording of another thread in between is later, so a wait for it
    covers no less work, and only work enqueued before it.
    """
    tail = self._tail
    if tail is None or tail.is_closed:
        tail = self._tail = Event(self.device)
    return self.record(tail)


def launch_host(self: Stream, function: int, user_data: int = 0) -> None:
    """Call the native `function(void *user_data)` once all earlier work is done.

    `function` is the address of machine code that uses no Python (for instance libc's sem_post) and
    makes no CUDA call: it runs on the driver's own thread, where a wait for the GIL can deadlock.
    Later work of the stream waits for it. Returns at once. (cuLaunchHostFunc)
    """
    refuse_python(function)
    launch_host_function(int(self.enter()), function, user_data)


def wait_value(self: Stream, address: int, value: int) -> None:
    """Make later work wait until the 32-bit word at `address` has reached or passed `value`.

    `address` is in device memory or page-locked host memory; "past" is by the sign of the
    difference, modulo 2**32. Returns at once. (cuStreamWaitValue32, CU_STREAM_WAIT_VALUE_GEQ)
    """
    code = driver.cuStreamWaitValue32(self.enter(), address, value, 0)[0]
    if code:
        raise failure(code, "cuStreamWaitValue32")
