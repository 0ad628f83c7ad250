"""Cellar. Footprints: the reads and writes of a step, and conflicts between two steps.

Bytes have the same name in every run of a program. Memory that exists before a run is named by its
address, memory that the run allocates by the number of the allocation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from cudasync.softgpu.core.memory.allocation_table import MemoryKind

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import TypeAlias

    from cudasync.softgpu.core.machine import Machine
    from cudasync.softgpu.core.streams.commands import Touched

    Ranges: TypeAlias = dict[int, list[tuple[int, int]]]

# The space of memory from before the run; the spaces of the run's allocations follow.
_LASTING = 0
_MAPPED = -1
# More separate ranges of bytes than this count as one range.
_MOST_RANGES = 256


class Footprint(NamedTuple):
    """For each space, the sorted ranges of read and of written bytes.

    With `is_everything`, the accesses are unknown, so the step conflicts with every access.
    """

    reads: Ranges
    writes: Ranges
    is_everything: bool = False

    def conflicts(self, other: Footprint) -> bool:
        """True if the order of the two steps may change the result."""
        if self.is_everything or other.is_everything:
            return self.touches_anything and other.touches_anything
        return (
            _meet(self.writes, other.writes)
            or _meet(self.writes, other.reads)
            or _meet(self.reads, other.writes)
        )

    @property
    def touches_anything(self) -> bool:
        return self.is_everything or bool(self.reads or self.writes)


NOTHING = Footprint({}, {})
EVERYTHING = Footprint({}, {}, is_everything=True)


def _meet(left: Ranges, right: Ranges) -> bool:
    if len(left) > len(right):
        left, right = right, left
    return any(space in right and _overlap(ranges, right[space]) for space, ranges in left.items())


def _overlap(left: list[tuple[int, int]], right: list[tuple[int, int]]) -> bool:
    i = j = 0
    while i < len(left) and j < len(right):
        if left[i][1] <= right[j][0]:
            i += 1
        elif right[j][1] <= left[i][0]:
            j += 1
        else:
            return True
    return False


class Names:
    """Names bytes for the length of one run."""

    def __init__(self, machine: Machine) -> None:
        self._tables = [*(device.memory for device in machine.devices), machine.host_memory]
        self._made_before = [table.made for table in self._tables]
        self._find = machine.memory.table_of

    def footprint(self, touched: Touched | None) -> Footprint:
        """The footprint of a step; None stands for unknown accesses."""
        if touched is None:
            return EVERYTHING
        return Footprint(self._named(touched.reads), self._named(touched.writes))

    def _named(self, ranges: Iterable[tuple[int, int]]) -> Ranges:
        found: Ranges = {}
        for start, end in ranges:
            if start < end:
                space, base = self._space(start)
                found.setdefault(space, []).append((start - base, end - base))
        return {space: _tidied(each) for space, each in found.items()}

    def _space(self, address: int) -> tuple[int, int]:
        table = self._find(address)
        allocation = table.find(address) or table.find_freed(address)
        if allocation is None:
            return _LASTING, 0
        if allocation.kind is MemoryKind.VIRTUAL:
            # The same memory may be mapped elsewhere, so all mapped memory has one space.
            return _MAPPED, address
        index = self._tables.index(table)
        number = allocation.number - self._made_before[index]
        if number <= 0:
            return _LASTING, 0
        return number * len(self._tables) + index + 1, allocation.start


def _tidied(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The ranges sorted and joined; one range if there are too many."""
    ranges.sort()
    joined = ranges[:1]
    for start, end in ranges[1:]:
        if start <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(end, joined[-1][1])
        else:
            joined.append((start, end))
    if len(joined) > _MOST_RANGES:
        return [(joined[0][0], joined[-1][1])]
    return joined
