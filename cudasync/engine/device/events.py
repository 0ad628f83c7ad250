"""Floor 2. Reused events: a ring per device.

When an op is over, the thread with the accepted outcome (`completion`) returns the op's event to
the ring. Meanwhile another thread may be about to wait for the event, and would then wait for its
next record. So a waiter *pins* the event first:

- it adds a pin to the event, sets `op._is_awaited`, then looks at `op.finished`;
- the ender of the op sets `finished`, then looks at `_is_awaited`, and leaves a pinned event to the
  thread that removes the last pin.

Both stores are to the op, so one of the two threads sees the other.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from cudasync.driver import Event
from cudasync.driver.streams.open_captures import Relaxed
from cudasync.errors import CudasyncError

if TYPE_CHECKING:
    from collections.abc import Callable

    from cudasync.driver import Device, Stream
    from cudasync.engine.op_classes import DeviceOp
    from cudasync.engine.trace import Counters


class RingEvent(Event):
    """An event of a ring. The engine queries it at any time, so a query must not end a stream
    capture of the program."""

    __slots__ = ("owed", "pins")

    def __init__(self, device: Device, *, timing: bool) -> None:
        super().__init__(device, timing=timing)
        # One item per thread that may be about to wait for it.
        self.pins: list[None] = []
        # One item if it was pinned when its op ended and must still go back.
        self.owed: list[None] = []

    def query(self) -> bool:
        with Relaxed():
            return super().query()

    def synchronize(self) -> None:
        with Relaxed():
            super().synchronize()


class EventPool:
    """The events of one device; `counters` counts the created events."""

    __slots__ = ("_counters", "_ring", "device", "give_back", "take_free", "timing")

    def __init__(self, device: Device, *, timing: bool, counters: Counters) -> None:
        self.device = device
        self.timing = timing
        self._counters = counters
        # The event that has been free for longest is the first.
        self._ring: deque[RingEvent] = deque()
        # An event that nobody waits for; raises IndexError if none is free.
        self.take_free: Callable[[], RingEvent] = self._ring.popleft
        # For an event that was never pinned, once its op is over; each goes back once.
        self.give_back: Callable[[RingEvent], None] = self._ring.append

    def take(self) -> RingEvent:
        """An event that nobody waits for. One driver call if none is free, else no call."""
        try:
            return self.take_free()
        except IndexError:
            event = RingEvent(self.device, timing=self.timing)
            self._counters.events_created.next()
            return event

    def renew(self, *, timing: bool) -> None:
        """Later events have times, or none; the free events are dropped.

        An event without times that comes back later ends with its last user.
        """
        free, ring = self._ring, deque[RingEvent]()

        def give_back(event: RingEvent) -> None:
            if event.timing:
                ring.append(event)

        self.timing = timing
        self.give_back = give_back if timing else ring.append
        self._ring, self.take_free = ring, ring.popleft
        while free:
            with suppress(CudasyncError, IndexError):
                free.popleft().close()

    def pin(self, op: DeviceOp, event: RingEvent) -> bool:
        """Before a wait for `event`, the event of `op`: False if the op is over and needs no wait.
        After True, `unpin` it."""
        event.pins.append(None)
        op._is_awaited = True
        if not op.finished:
            return True
        self.unpin(event)
        return False

    def unpin(self, event: RingEvent) -> None:
        """The caller's wait is over, or enqueued in the driver."""
        event.pins.pop()
        if not event.pins:
            self._settle(event)

    def give_back_pinned(self, event: RingEvent) -> None:
        """Return an event that may still be pinned; its op is over."""
        event.owed.append(None)
        # `unpin` stores and looks in the reverse order: one of the two finds it owed and unpinned.
        if not event.pins:
            self._settle(event)

    def _settle(self, event: RingEvent) -> None:
        with suppress(IndexError):
            event.owed.pop()
            self.give_back(event)

    def close(self) -> None:
        """Destroy the free events; every other event ends with its last user."""
        while self._ring:
            with suppress(CudasyncError, IndexError):
                self.take_free().close()


def recorded(fn: Callable[[Stream], Any], stream: Stream, event: Event | None = None) -> Any:
    """Call `fn(stream)`, then record `event`."""
    result = fn(stream)
    if event is not None:
        stream.record(event)
    return result
