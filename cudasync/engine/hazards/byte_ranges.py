"""Floor 2. `Cover`, a set of bytes as ranges."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

from cudasync.engine.hazards.interval_map import Region

if TYPE_CHECKING:
    from collections.abc import Iterator


class Cover:
    """A set of bytes: its ranges are disjoint, not empty, and sorted."""

    __slots__ = ("_ends", "_starts")

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []

    def __iter__(self) -> Iterator[Region]:
        return map(Region, self._starts, self._ends)

    def add(self, region: tuple[int, int]) -> None:
        start, end = region
        if start >= end:
            return
        first, last = self._touched(start, end)
        if first < last:
            start, end = min(start, self._starts[first]), max(end, self._ends[last - 1])
        self._starts[first:last] = [start]
        self._ends[first:last] = [end]

    def remove(self, region: tuple[int, int]) -> None:
        start, end = region
        first, last = self._touched(start, end)
        if start >= end or first == last:
            return
        left = [(self._starts[first], start), (end, self._ends[last - 1])]
        left = [(low, high) for low, high in left if low < high]
        self._starts[first:last] = [low for low, _ in left]
        self._ends[first:last] = [high for _, high in left]

    def within(self, region: tuple[int, int]) -> list[Region]:
        """The parts of `region` in the set."""
        start, end = region
        return [
            Region(max(low, start), min(high, end))
            for low, high in self._ranges(*self._touched(start, end))
        ]

    def without(self, region: tuple[int, int]) -> Iterator[Region]:
        """The parts of `region` outside the set."""
        start, end = region
        for low, high in self._ranges(*self._touched(start, end)):
            if start < low:
                yield Region(start, low)
            start = max(start, high)
        if start < end:
            yield Region(start, end)

    def touches(self, region: tuple[int, int]) -> bool:
        """True if a byte of `region` is in the set."""
        first, last = self._touched(*region)
        return first < last

    def _ranges(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        return zip(self._starts[first:last], self._ends[first:last], strict=True)

    def _touched(self, start: int, end: int) -> tuple[int, int]:
        """The index of the first range that shares a byte with [start, end), and the end index."""
        first = bisect_left(self._ends, start + 1)
        return first, bisect_left(self._starts, end, first)
