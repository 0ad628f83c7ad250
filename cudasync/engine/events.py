"""Floor 2. Events, used again and again: a ring per device.

An event may be recorded anew only when nobody can still wait for its last recording. Who may is
whoever refers to the `Event`: the op that it stands for, a thread that is about to wait, a
question to a watcher. So the interpreter's reference count is the count of users, kept without
a lock of ours: an event that nothing refers to but the ring is free.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from sys import getrefcount
from typing import TYPE_CHECKING

from cudasync.driver import Event
from cudasync.errors import CudasyncError

if TYPE_CHECKING:
    from cudasync.driver import Device
    from cudasync.engine.trace import Counters

# Events of the ring that may be looked at before one more is made, on average and saved up: so a
# few that stay in use for long do not make the ring grow, and many do not make `take` slow.
_LOOKS = 3
_MOST_LOOKS = 1000


def _unused() -> int:
    """What `getrefcount` says in `take` of an event that nobody uses."""
    ring = deque([object()])
    event = ring.popleft()
    return getrefcount(event)


_UNUSED = _unused()


class EventPool:
    """The events of one device; `counters` counts those that had to be made."""

    __slots__ = ("_counters", "_looks", "_ring", "device", "timing")

    def __init__(self, device: Device, *, timing: bool, counters: Counters) -> None:
        self.device = device
        self.timing = timing
        self._counters = counters
        # The one that was handed out longest ago is the first. One that a thread has popped and
        # not appended yet is that thread's: nobody else can come to use it.
        self._ring: deque[Event] = deque()
        # A hint: what threads write at once is one or the other.
        self._looks = 0

    def take(self) -> Event:
        """An event that nobody waits for. One driver call when there is none free, else none.

        It goes back by itself, when the caller and all to whom it was given have let it go.
        """
        ring = self._ring
        try:
            # As `_look` does; mostly the first look is the last.
            event = ring.popleft()
            if getrefcount(event) == _UNUSED:
                ring.append(event)
                self._looks += _LOOKS - 1
                return event
            ring.append(event)
        except IndexError:
            pass
        return self._look(min(self._looks, _MOST_LOOKS) + _LOOKS)

    def _look(self, looks: int) -> Event:
        """One of the next so many events, or a new one."""
        ring = self._ring
        while looks > 0:
            looks -= 1
            try:
                event = ring.popleft()
            except IndexError:
                break
            if getrefcount(event) == _UNUSED:
                ring.append(event)
                self._looks = looks
                return event
            ring.append(event)
        self._looks = 0
        event = Event(self.device, timing=self.timing)
        self._counters.events_created.next()
        ring.append(event)
        return event

    def close(self) -> None:
        """Destroy the events that are free; each of the others goes with its last user."""
        while self._ring:
            with suppress(CudasyncError, IndexError):
                event = self._ring.popleft()
                if getrefcount(event) == _UNUSED:
                    event.close()
