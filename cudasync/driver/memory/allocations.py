"""Floor 1. The register of the library's allocations: finds the allocation of an address.

Every buffer and every piece of pinned memory is noted when it is made. Its end is not reported: a
look-up asks the owner. So an allocation costs one dict entry, and only look-ups pay more.
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
# The notes are first swept at this number, and later whenever they have doubled.
_SWEEP = 1024
# After so many ended allocations in a row, the sorted list is made anew.
_MANY = 32


class Allocated(NamedTuple):
    """One allocation: the bytes [start, end); `ordinal` is its device's, None if pinned."""

    start: int
    end: int
    ordinal: int | None
    owner: weakref.ref[Owned]

    @property
    def is_live(self) -> bool:
        owner = self.owner()
        return owner is not None and not owner.is_closed


class Allocations:
    """The library's allocations in this process. Any number of threads may use it at once."""

    def __init__(self) -> None:
        # Notes of ended allocations stay until their address is noted anew, or a sweep.
        self._notes: Roll[Allocated] = Roll()
        # By start address the number of the latest known note there.
        self._latest: dict[int, int] = {}
        self._sweep_at = _SWEEP
        # Called with start and end of new memory, and of memory that a reset has ended: older
        # knowledge of these addresses is about memory that is gone.
        self.tells: Callable[[int, int], None] | None = None
        # A new object after each change.
        self.version: object = None
        # The last sorted list, with its version.
        self._sorted: tuple[object, list[Allocated]] = (None, [])

    def note(self, owner: Owned, start: int, size_bytes: int, ordinal: int | None) -> None:
        """Note memory that was just allocated; it is live as long as `owner` is open."""
        note = Allocated(start, start + size_bytes, ordinal, weakref.ref(owner))
        latest, self._latest[start] = self._latest.get(start), self._notes.add(note)
        if latest is not None:
            self._notes.remove(latest)
        # After the note: a list sorted without it has the version before.
        self.version = object()
        if len(self._notes) >= self._sweep_at:
            self._sweep()
        if self.tells is not None:
            self.tells(start, start + size_bytes)

    def of_device(self, ordinal: int) -> list[Allocated]:
        """The allocations on a device, live or ended, whose addresses nobody else has now."""
        others = [each for each in self.live() if each.ordinal != ordinal]
        ends = [each.end for each in others]
        return [
            each
            for each in self._notes.all()
            if each.ordinal == ordinal and not _is_overlapped(each, others, ends)
        ]

    def tell_of_end(self, gone: list[Allocated]) -> None:
        """These addresses are nobody's any more: a reset of their device has ended the memory."""
        if self.tells is not None:
            for each in gone:
                self.tells(each.start, each.end)

    def live(self) -> list[Allocated]:
        """The live allocations, by address."""
        return [each for each in self._by_address() if each.is_live]

    def at(self, address: int) -> list[Allocated]:
        """The live allocations that contain `address`, or end there: a pointer may point behind the
        last element, and be moved back before its use."""
        known = self._by_address()
        found: list[Allocated] = []
        place = bisect_right(known, address, key=_start) - 1
        while place >= 0:
            each = known[place]
            place -= 1
            # An ended allocation may overlap others.
            if each.is_live:
                if address <= each.end:
                    found.append(each)
                if each.start < address:
                    break
        return found

    def between(self, start: int, end: int) -> list[Allocated]:
        """The live allocations that overlap [start, end), by address."""
        known = self._by_address()
        place = first = bisect_right(known, start, key=_start) - 1
        # The previous live allocation may reach in; ended ones may lie between.
        while first > 0 and not known[first].is_live:
            first -= 1
            if place - first > _MANY:
                # Sort anew, so that later look-ups skip these.
                known = self._sort()
                place = first = bisect_right(known, start, key=_start) - 1
        last = bisect_left(known, end, key=_start)
        return [each for each in known[max(0, first) : last] if each.end > start and each.is_live]

    def _by_address(self) -> list[Allocated]:
        of, known = self._sorted
        return known if of is self.version else self._sort()

    def _sort(self) -> list[Allocated]:
        """The live allocations, and some that end meanwhile, by address."""
        version = self.version
        # An ended allocation stays ended.
        known = [each for each in self._notes.all() if each.is_live]
        # The sort is stable: of notes with one address the latest comes last.
        known.sort(key=_start)
        self._sorted = (version, known)
        return known

    def _sweep(self) -> None:
        self._notes.strike(_is_over)
        # Later notes add their addresses again.
        self._latest.clear()
        self._sweep_at = max(_SWEEP, 2 * len(self._notes))


def _is_overlapped(each: Allocated, live: list[Allocated], ends: list[int]) -> bool:
    """True if a live allocation overlaps `each`; they are sorted by address, and are disjoint."""
    place = bisect_right(ends, each.start)
    return place < len(live) and live[place].start < each.end


def _is_over(each: Allocated) -> bool:
    return not each.is_live


ALLOCATIONS = Allocations()


def is_known_to_driver(address: int, device: Device) -> bool:
    """Whether the driver knows `address` as memory, of any owner.

    (cuPointerGetAttribute)
    """
    device.context.enter()
    attribute = driver.CUpointer_attribute.CU_POINTER_ATTRIBUTE_MEMORY_TYPE
    code, kind = driver.cuPointerGetAttribute(attribute, address)
    return not code and bool(kind)
