"""Floor 2. Events, taken from a pool per device and given back.

An event may be recorded anew only when nobody can still wait for its last recording: the op it
stands for has finished, and no thread has pinned it. All of it under `plan.LOCK`, except the
driver calls themselves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.driver import Event
from cudasync.engine import plan

if TYPE_CHECKING:
    from cudasync.driver import Device
    from cudasync.engine.trace import Statistics


class PooledEvent:
    """An event on loan. `pins` counts threads that are about to use it, the op itself included."""

    __slots__ = ("event", "pins", "pool")

    def __init__(self, event: Event, pool: EventPool) -> None:
        self.event = event
        self.pool = pool
        self.pins = 1

    def unpin(self) -> None:
        """Let go; the last one to do so gives the event back. The caller holds the lock."""
        self.pins -= 1
        assert self.pins >= 0, "an event was given back twice"
        if self.pins == 0:
            self.pool.free.append(self.event)


class EventPool:
    """The idle events of one device; `statistics` counts those that had to be made."""

    __slots__ = ("device", "free", "statistics", "timing")

    def __init__(self, device: Device, *, timing: bool, statistics: Statistics) -> None:
        self.device = device
        self.timing = timing
        self.statistics = statistics
        self.free: list[Event] = []

    def take(self) -> PooledEvent:
        """An event that nobody waits for. One driver call when the pool is empty, else none.

        Called without the lock, because of that driver call; `list.pop` is one C call.
        """
        try:
            event = self.free.pop()
        except IndexError:
            event = Event(self.device, timing=self.timing)
            with plan.LOCK:
                self.statistics.events_created += 1
        return PooledEvent(event, self)

    def close(self) -> None:
        while self.free:
            self.free.pop().close()
