"""Cellar. Advice for managed memory, and its prefetch locations.

Memory never moves here, so advice has no effect. It is kept for each page and returned on request.
A call against the rules is refused, as a GPU's driver does.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from cudasync.softgpu.core.driver_types.memory_locations import CPU, HOST, NO_DEVICE, Location
from cudasync.softgpu.core.driver_types.result_codes import INVALID_VALUE, DriverFailure

if TYPE_CHECKING:
    from collections.abc import Callable

    from cudasync.softgpu.core.machine import Machine
    from cudasync.softgpu.core.memory.allocation_table import Allocation

_PAGE: Final = 4096

# CUmem_advise.
_READ_MOSTLY, _NOT_READ_MOSTLY, _PREFER, _PREFER_NONE, _ACCESSED, _NOT_ACCESSED = range(1, 7)
# CUmem_range_attribute.
_IS_READ_MOSTLY, _PREFERRED, ACCESSED_BY, _PREFETCHED = 1, 2, 3, 4
_PREFERRED_KIND, _PREFERRED_NUMBER, _PREFETCHED_KIND, _PREFETCHED_NUMBER = 5, 6, 7, 8


@dataclass(frozen=True, slots=True)
class Advice:
    """The advice for a page."""

    is_read_mostly: bool = False
    preferred: Location | None = None
    prefetched: Location | None = None
    accessed_by: frozenset[int] = frozenset()


class Pages:
    """Advice by page: runs of pages with the same advice, in order and without gaps."""

    def __init__(self, start: int, end: int) -> None:
        # Pages are counted from the start of the memory, as if it began on a page.
        self._base = start
        self._starts = [0]
        self._end = -(-(end - start) // _PAGE)
        self._said = [Advice()]

    def change(self, start: int, end: int, change: Callable[[Advice], Advice]) -> None:
        """Apply `change` to all pages that [start, end) touches."""
        first, last = self._pages(start, end)
        self._cut(first)
        self._cut(last)
        for index in range(bisect_left(self._starts, first), bisect_left(self._starts, last)):
            self._said[index] = change(self._said[index])

    def _pages(self, start: int, end: int) -> tuple[int, int]:
        return (start - self._base) // _PAGE, -(-(end - self._base) // _PAGE)

    def _cut(self, page: int) -> None:
        index = bisect_right(self._starts, page) - 1
        if self._starts[index] < page < self._end:
            self._starts.insert(index + 1, page)
            self._said.insert(index + 1, self._said[index])

    def said(self, start: int, end: int) -> set[Advice]:
        """All advice for pages of [start, end)."""
        first, last = self._pages(start, end)
        begin = bisect_right(self._starts, first) - 1
        return set(self._said[begin : bisect_left(self._starts, last)])


class Managed:
    """The advice for all managed memory of a machine."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def _pages(self, address: int, size_bytes: int) -> Pages:
        """The pages of a range; DriverFailure INVALID_VALUE if it is not managed memory.

        The executor's lock is held: `Pages` are made at the first use.
        """
        found: Allocation | None = self._machine.memory.find(address)
        if found is None or found.is_freeing or not found.kind.is_managed:
            raise DriverFailure(INVALID_VALUE, f"{address:#x} is not managed memory")
        if not size_bytes or address + size_bytes > found.end:
            raise DriverFailure(
                INVALID_VALUE, f"{size_bytes} bytes at {address:#x}: {found.describe()}"
            )
        if found.pages is None:
            found.pages = Pages(found.start, found.end)
        return found.pages

    def advise(self, address: int, size_bytes: int, advice: int, location: Location) -> None:
        """cuMemAdvise."""
        if advice not in range(_READ_MOSTLY, _NOT_ACCESSED + 1):
            raise DriverFailure(INVALID_VALUE, f"there is no advice {advice}")
        if advice in (_PREFER, _ACCESSED, _NOT_ACCESSED):
            location.device(self._machine.devices)
        number = CPU if location.is_host else location.number
        changes: dict[int, Callable[[Advice], Advice]] = {
            _READ_MOSTLY: lambda said: replace(said, is_read_mostly=True),
            _NOT_READ_MOSTLY: lambda said: replace(said, is_read_mostly=False),
            _PREFER: lambda said: replace(said, preferred=location),
            _PREFER_NONE: lambda said: replace(said, preferred=None),
            _ACCESSED: lambda said: replace(said, accessed_by=said.accessed_by | {number}),
            _NOT_ACCESSED: lambda said: replace(said, accessed_by=said.accessed_by - {number}),
        }
        with self._machine.executor.lock:
            pages = self._pages(address, size_bytes)
            pages.change(address, address + size_bytes, changes[advice])

    def prefetch(self, address: int, size_bytes: int, location: Location) -> None:
        """cuMemPrefetchAsync: records the target at once, independent of the stream."""
        location.device(self._machine.devices)
        with self._machine.executor.lock:
            pages = self._pages(address, size_bytes)
            pages.change(
                address, address + size_bytes, lambda said: replace(said, prefetched=location)
            )

    def check(self, address: int, size_bytes: int) -> None:
        """DriverFailure INVALID_VALUE if the range is not managed memory."""
        with self._machine.executor.lock:
            self._pages(address, size_bytes)

    def attribute(self, address: int, size_bytes: int, number: int) -> int:
        """cuMemRangeGetAttribute: the value that all pages share, else the value for "none"."""
        with self._machine.executor.lock:
            said = self._pages(address, size_bytes).said(address, address + size_bytes)
        if number == _IS_READ_MOSTLY:
            return int(all(each.is_read_mostly for each in said))
        if number in (_PREFERRED, _PREFERRED_KIND, _PREFERRED_NUMBER):
            places = {each.preferred for each in said}
        elif number in (_PREFETCHED, _PREFETCHED_KIND, _PREFETCHED_NUMBER):
            places = {each.prefetched for each in said}
        else:
            raise DriverFailure(INVALID_VALUE, f"there is no range attribute {number}")
        place = next(iter(places)) if len(places) == 1 else None
        if number in (_PREFERRED_KIND, _PREFETCHED_KIND):
            return place.kind if place is not None else 0
        if place is None:
            return NO_DEVICE
        if number in (_PREFERRED_NUMBER, _PREFETCHED_NUMBER):
            return place.number
        return CPU if place.is_host else place.number

    def whereabouts(self, address: int, size_bytes: int) -> Location:
        """The location of a range's last prefetch; the host before any prefetch."""
        with self._machine.executor.lock:
            said = self._pages(address, size_bytes).said(address, address + size_bytes)
        places = {each.prefetched for each in said if each.prefetched is not None}
        return min(places) if len(places) == 1 else Location(HOST)

    def accessed_by(self, address: int, size_bytes: int) -> list[int]:
        """The devices, then CPU, that have ACCESSED_BY advice for all pages of a range."""
        with self._machine.executor.lock:
            said = self._pages(address, size_bytes).said(address, address + size_bytes)
        numbers = frozenset.intersection(*(each.accessed_by for each in said))
        return sorted(numbers, key=lambda number: (number == CPU, number))
