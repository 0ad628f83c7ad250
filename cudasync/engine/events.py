"""Floor 2. Events, taken from a pool per device and given back.

An event may be recorded anew only when nobody can still wait for its last recording. Who may is
whoever holds the `PooledEvent`: the op that it stands for, a thread that is about to wait, a
question to a watcher. When the last of them lets go, the interpreter calls `__del__`, and the
event goes back: the reference count is the count of users, and it is kept without a lock of ours.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING

from cudasync.driver import Event
from cudasync.errors import CudasyncError

if TYPE_CHECKING:
    from cudasync.driver import Device
    from cudasync.engine.trace import Counters


class PooledEvent:
    """An event on loan, for as long as anybody refers to it."""

    __slots__ = ("_free", "event")

    def __init__(self, event: Event, free: deque[Event]) -> None:
        self.event = event
        self._free = free

    def __del__(self) -> None:
        # One C call: this may run anywhere. Ctrl-C may have cut the construction short.
        with suppress(AttributeError):
            self._free.append(self.event)


class EventPool:
    """The idle events of one device; `counters` counts those that had to be made."""

    __slots__ = ("_counters", "_free", "_made", "device", "timing")

    def __init__(self, device: Device, *, timing: bool, counters: Counters) -> None:
        self.device = device
        self.timing = timing
        self._counters = counters
        self._free: deque[Event] = deque()
        # Else an event on loan that ends in a cycle (an exception's frames, say) would be finalised
        # with it, and come back all the same: `PooledEvent.__del__` is called in such a case, too.
        self._made: list[Event] = []

    def take(self) -> PooledEvent:
        """An event that nobody waits for. One driver call when the pool is empty, else none."""
        try:
            event = self._free.pop()
        except IndexError:
            event = Event(self.device, timing=self.timing)
            self._made.append(event)
            self._counters.events_created.next()
        return PooledEvent(event, self._free)

    def close(self) -> None:
        """Destroy the idle events; one that comes back later goes with its last reference."""
        self._made.clear()
        while self._free:
            with suppress(CudasyncError, IndexError):
                self._free.pop().close()
