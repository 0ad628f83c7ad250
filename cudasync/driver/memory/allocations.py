"""Floor 1. Which memory is ours: from an address to the allocation that holds it.

Every buffer and every piece of pinned memory is noted when it is made. Nothing is told of its end:
its owner is asked when somebody looks. So an allocation costs one entry in a dict, and what a look
costs is paid by those who look.
"""

from __future__ import annotations

import weakref
from bisect import bisect_left, bisect_right
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

from cuda.bindings import driver

from cudasync.atomic import Roll

if TYPE_CHECKING:
    from collections.abc import Callable

    from cudasync.driver.device import Device
    from cudasync.driver.ownership.handles import Owned

_start = itemgetter(0)
# The notes are first swept at this many; from then on whenever they have doubled.
_SWEEP = 1024
# So many that ended, one after the other, are taken out of what was sorted.
_MANY = 32


class Allocated(NamedTuple):
    """Memory of ours: the bytes [start, end); `ordinal` is its device's, None for pinned memory."""

    start: int
    end: int
    ordinal: int | None
    owner: weakref.ref[Owned]

    @property
    def is_live(self) -> bool:
        owner = self.owner()
        return owner is not None and not owner.is_closed


class Allocations:
    """All memory of ours in this process. Any number of threads may use it at once."""

    def __init__(self) -> None:
        # What ended stays until its address is noted anew, or a sweep.
        self._notes: Roll[Allocated] = Roll()
        # By first address the number of the latest note there, as far as it was seen.
        self._latest: dict[int, int] = {}
        self._sweep_at = _SWEEP
        # Told the first and the last address of memory that is new: what it remembers of these
        # addresses is of memory that is gone.
        self.tells: Callable[[int, int], None] | None = None
        # Another object after each change.
        self.version: object = None
        # What was sorted last, and the version it is of.
        self._sorted: tuple[object, list[Allocated]] = (None, [])

    def note(self, owner: Owned, start: int, size_bytes: int, ordinal: int | None) -> None:
        """Remember memory that was just allocated; it is ours as long as `owner` is open."""
        note = Allocated(start, start + size_bytes, ordinal, weakref.ref(owner))
        latest, self._latest[start] = self._latest.get(start), self._notes.add(note)
        if latest is not None:
            self._notes.remove(latest)
        # After the note: who sorted without it has the version before.
        self.version = object()
        if len(self._notes) >= self._sweep_at:
            self._sweep()
        if self.tells is not None:
            self.tells(start, start + size_bytes)

    def live(self) -> list[Allocated]:
        """What there is now, by address."""
        return [each for each in self._by_address() if each.is_live]

    def at(self, address: int) -> list[Allocated]:
        """The allocations that hold `address`, or end there: a pointer may be to behind the last
        element, and be moved back before it is used."""
        known = self._by_address()
        found: list[Allocated] = []
        place = bisect_right(known, address, key=_start) - 1
        while place >= 0:
            each = known[place]
            place -= 1
            # What ended may lie across others.
            if each.is_live:
                if address <= each.end:
                    found.append(each)
                if each.start < address:
                    break
        return found

    def between(self, start: int, end: int) -> list[Allocated]:
        """What there is now in [start, end), or reaches into it, by address."""
        known = self._by_address()
        place = first = bisect_right(known, start, key=_start) - 1
        # The live one before may reach in; what ended may lie between.
        while first > 0 and not known[first].is_live:
            first -= 1
            if place - first > _MANY:
                # Not again, each time that somebody looks.
                known = self._sort()
                place = first = bisect_right(known, start, key=_start) - 1
        last = bisect_left(known, end, key=_start)
        return [each for each in known[max(0, first) : last] if each.end > start and each.is_live]

    def _by_address(self) -> list[Allocated]:
        of, known = self._sorted
        return known if of is self.version else self._sort()

    def _sort(self) -> list[Allocated]:
        """What there is, and some that end meanwhile, by address."""
        version = self.version
        # What has ended stays so.
        known = [each for each in self._notes.all() if each.is_live]
        # Of those with one address the latest stands last.
        known.sort(key=_start)
        self._sorted = (version, known)
        return known

    def _sweep(self) -> None:
        self._notes.strike(_is_over)
        # What is seen of later notes is seen again.
        self._latest.clear()
        self._sweep_at = max(_SWEEP, 2 * len(self._notes))


def _is_over(each: Allocated) -> bool:
    return not each.is_live


ALLOCATIONS = Allocations()


def is_known_to_driver(address: int, device: Device) -> bool:
    """Whether the driver knows `address` as memory, whoever allocated it.

    (cuPointerGetAttribute)
    """
    device.context.enter()
    attribute = driver.CUpointer_attribute.CU_POINTER_ATTRIBUTE_MEMORY_TYPE
    code, kind = driver.cuPointerGetAttribute(attribute, address)
    return not code and bool(kind)
