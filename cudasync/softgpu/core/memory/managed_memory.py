"""Cellar. What a program said of managed memory: advice, and where it prefetched to.

Memory is where it is here, so advice moves nothing. It is kept for each page and given back when
asked, and a call that contradicts the rules is refused as a GPU's driver refuses it.
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
    """What was said of a page."""

    is_read_mostly: bool = False
    preferred: Location | None = None
    prefetched: Location | None = None
    accessed_by: frozenset[int] = frozenset()


class Pages:
    """Advice by page: runs of pages of which the same was said, in order and without gaps."""

    def __init__(self, start: int, end: int) -> None:
        # Counted from the start of the memory, as if it lay at the start of a page.
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
        """All that was said of any page of [start, end)."""
        first, last = self._pages(start, end)
        begin = bisect_right(self._starts, first) - 1
        return set(self._said[begin : bisect_left(self._starts, last)])


class Managed:
    """The advice for all managed memory of a machine."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def _pages(self, address: int, size_bytes: int) -> Pages:
        """The pages of a range; DriverFailure INVALID_VALUE if it is not managed memory.

        The executor's lock is held: they are made when something is first said of them.
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
        """cuMemPrefetchAsync: where to is known at once, whenever the pages get there."""
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
        """cuMemRangeGetAttribute: what holds of all pages, else that nothing does."""
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
        """Where a range was last prefetched to; it is the host's before."""
        with self._machine.executor.lock:
            said = self._pages(address, size_bytes).said(address, address + size_bytes)
        places = {each.prefetched for each in said if each.prefetched is not None}
        return min(places) if len(places) == 1 else Location(HOST)

    def accessed_by(self, address: int, size_bytes: int) -> list[int]:
        """The devices, and last CPU, that were said to access all pages of a range."""
        with self._machine.executor.lock:
            said = self._pages(address, size_bytes).said(address, address + size_bytes)
        numbers = frozenset.intersection(*(each.accessed_by for each in said))
        return sorted(numbers, key=lambda number: (number == CPU, number))
