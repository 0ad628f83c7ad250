"""Floor 2. Events, used again and again: a ring per device.

An event goes back to the ring when its op is over, from whoever ended the op: one thread, since
one is believed (`completion`). Meanwhile another thread may be about to wait for it, and would
then wait for whatever the event was recorded behind next. So who waits *pins* the event first:

- a pin is put on the event, `op._is_awaited` is set, then `op.finished` is looked at;
- who ends the op sets `finished`, then looks at `_is_awaited`, and leaves a pinned event to
  whoever takes the last pin off.

Both stores are to the op, so one of the two sees the other.
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
    """An event of a ring. The engine asks about it at times of its own, so that may not end a
    stream capture of the program's."""

    __slots__ = ("owed", "pins")

    def __init__(self, device: Device, *, timing: bool) -> None:
        super().__init__(device, timing=timing)
        # One item per thread that may be about to wait for it.
        self.pins: list[None] = []
        # One item while it is to go back, and was pinned when its op ended.
        self.owed: list[None] = []

    def query(self) -> bool:
        with Relaxed():
            return super().query()

    def synchronize(self) -> None:
        with Relaxed():
            super().synchronize()


class EventPool:
    """The events of one device; `counters` counts those that had to be made."""

    __slots__ = ("_counters", "_ring", "_take", "device", "give_back", "timing")

    def __init__(self, device: Device, *, timing: bool, counters: Counters) -> None:
        self.device = device
        self.timing = timing
        self._counters = counters
        # The one that has been free for longest is the first.
        self._ring: deque[RingEvent] = deque()
        self._take = self._ring.popleft
        # For an event whose op is over and was never pinned; each is given back once.
        self.give_back: Callable[[RingEvent], None] = self._ring.append

    def take(self) -> RingEvent:
        """An event that nobody waits for. One driver call when there is none free, else none."""
        try:
            return self._take()
        except IndexError:
            event = RingEvent(self.device, timing=self.timing)
            self._counters.events_created.next()
            return event

    def renew(self, *, timing: bool) -> None:
        """Events from here on have times, or none; those that are free are given up.

        One without a time that comes back later goes with its last user.
        """
        free, ring = self._ring, deque[RingEvent]()

        def give_back(event: RingEvent) -> None:
            if event.timing:
                ring.append(event)

        self.timing = timing
        self.give_back = give_back if timing else ring.append
        self._ring, self._take = ring, ring.popleft
        while free:
            with suppress(CudasyncError, IndexError):
                free.popleft().close()

    def pin(self, op: DeviceOp, event: RingEvent) -> bool:
        """Before a wait for `event`, the event of `op`: False if the op is over, and nobody need
        wait. After True, `unpin` it."""
        event.pins.append(None)
        op._is_awaited = True
        if not op.finished:
            return True
        self.unpin(event)
        return False

    def unpin(self, event: RingEvent) -> None:
        """The caller's wait is over, or with the driver."""
        event.pins.pop()
        if not event.pins:
            self._settle(event)

    def give_back_pinned(self, event: RingEvent) -> None:
        """For an event whose op is over, and that may still be pinned."""
        event.owed.append(None)
        # Who takes a pin off looks the other way round: one of the two finds it owed and unpinned.
        if not event.pins:
            self._settle(event)

    def _settle(self, event: RingEvent) -> None:
        with suppress(IndexError):
            event.owed.pop()
            self.give_back(event)

    def close(self) -> None:
        """Destroy the events that are free; each of the others goes with its last user."""
        while self._ring:
            with suppress(CudasyncError, IndexError):
                self._take().close()


def recorded(fn: Callable[[Stream], Any], stream: Stream, event: Event | None = None) -> Any:
    """`fn(stream)`, and the event behind it."""
    result = fn(stream)
    if event is not None:
        stream.record(event)
    return result
