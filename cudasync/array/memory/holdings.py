"""Floor 4, memory. The device memory that arrays hold, from its allocation to the end of its free.

Allocations and frees are noted, never the reuse of a block in the pool. So reuse pays nothing for
the bookkeeping; a query walks through all notes.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from cudasync.atomic import Roll, Tickets
from cudasync.engine.hazards.interval_map import Region
from cudasync.locks import Lock

if TYPE_CHECKING:
    import weakref
    from types import CodeType

    from cudasync.array.allocation import Allocation
    from cudasync.driver import Device, DeviceBuffer
    from cudasync.engine import Op

# The notes are first swept at this number, and later whenever they have doubled.
_SWEEP = 256


class Holding:
    """One allocation of memory, and the state of its end."""

    __slots__ = ("at", "buffer", "code", "free", "region", "whose")

    def __init__(self, buffer: DeviceBuffer, whose: weakref.ref[Allocation], op: Op) -> None:
        self.buffer = buffer
        # A buffer forgets its address once its free is enqueued.
        self.region = Region(buffer.ptr, buffer.ptr + buffer.size_bytes)
        self.whose = whose
        # The place of the call that allocated it.
        self.code: CodeType = op._code
        self.at: int = op._at
        # The op that frees it, once that is pushed. Weak, because an op refers to its engine; an op
        # that nothing refers to is over.
        self.free: weakref.ref[Op] | None = None

    @property
    def is_dead(self) -> bool:
        """True if no array uses it any more, and no pool keeps it."""
        return self.whose() is None

    @property
    def pending(self) -> Op | None:
        """The op that frees it, until that is over."""
        op = None if self.free is None else self.free()
        return None if op is None or op.finished else op

    @property
    def is_over(self) -> bool:
        """True if the device has the memory back."""
        return self.buffer.is_closed and self.pending is None


class Tally:
    """A number of bytes that any thread changes, and its maximum.

    Each change is one `append`. A thread that finds no other thread adding adds them up in their
    order, so the maximum is exact for this order. No thread waits for the one that adds.
    """

    __slots__ = ("_adding", "_changes", "_now", "_peak")

    def __init__(self) -> None:
        self._changes: deque[int] = deque()
        self._adding = Lock()
        self._now = self._peak = 0

    def add(self, size_bytes: int) -> None:
        """Add bytes; a negative number subtracts."""
        self._changes.append(size_bytes)
        changes, adding = self._changes, self._adding
        # A finaliser that interrupts the adding leaves its change to the interrupted thread.
        while changes and not adding.is_held_here():
            try:
                if not adding.acquire(blocking=False):
                    return
                while changes:
                    self._now += changes.popleft()
                    self._peak = max(self._peak, self._now)
                adding.release()
            except BaseException:
                if adding.is_held_here():
                    adding.release()
                raise

    @property
    def now(self) -> int:
        """The current number, except for changes under way."""
        return self._now

    @property
    def peak(self) -> int:
        """The maximum so far."""
        return self._peak


class Holdings:
    """All memory that arrays hold on one device, in one life of its context."""

    __slots__ = ("_roll", "_sweep_at", "made", "tally")

    def __init__(self) -> None:
        self._roll: Roll[Holding] = Roll()
        self._sweep_at = _SWEEP
        # Counts the successful allocations by the driver.
        self.made = Tickets()
        # The bytes that were allocated and not yet freed.
        self.tally = Tally()

    def note(self, holding: Holding) -> None:
        """Note memory that was just allocated."""
        self._roll.add(holding)
        self.made.next()
        self.tally.add(holding.buffer.size_bytes)
        if len(self._roll) >= self._sweep_at:
            self._roll.strike(lambda each: each.is_over)
            self._sweep_at = max(_SWEEP, 2 * len(self._roll))

    def all(self) -> list[Holding]:
        """Memory that the device has not got back, the oldest first."""
        return [each for each in self._roll.all() if not each.is_over]


_holdings: dict[tuple[int, object], Holdings] = {}


def holdings_of(device: Device) -> Holdings:
    """The holdings of a device in its current life: a reset begins new ones."""
    key = device.ordinal, device.context.token
    found = _holdings.get(key)
    if found is None:
        for other in list(_holdings):
            if other[0] == key[0] and other != key:
                _holdings.pop(other, None)
        # dict.setdefault is one C call: all threads get the same object.
        found = _holdings.setdefault(key, Holdings())
    return found


def every_holdings() -> list[tuple[tuple[int, object], Holdings]]:
    """The holdings of all devices that had arrays, by ordinal and life, as in `POOLS`."""
    return sorted(_holdings.copy().items(), key=lambda each: each[0][0])
