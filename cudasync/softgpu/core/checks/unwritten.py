"""Cellar. The bytes of an allocation that nobody has written: sorted, disjoint ranges.

A kernel may write thousands of short ranges, so that each change takes time only for what it meets.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


class Unwritten:
    """A set of bytes."""

    def __init__(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Take sorted, disjoint ranges that are not empty."""
        pairs = list(ranges)
        self._starts = [start for start, _ in pairs]
        self._ends = [end for _, end in pairs]

    def __bool__(self) -> bool:
        return bool(self._starts)

    def within(self, start: int, end: int) -> list[tuple[int, int]]:
        """The unwritten ranges in [start, end)."""
        first, behind = self._met(start, end)
        return [
            (max(self._starts[place], start), min(self._ends[place], end))
            for place in range(first, behind)
        ]

    def take_away(self, start: int, end: int) -> None:
        """Note that these bytes are written."""
        first, behind = self._met(start, end)
        if first == behind:
            return
        low, high = self._starts[first], self._ends[behind - 1]
        left = [(a, b) for a, b in ((low, start), (end, high)) if a < b]
        self._starts[first:behind] = [a for a, _ in left]
        self._ends[first:behind] = [b for _, b in left]

    def add(self, start: int, end: int) -> None:
        """Note that these bytes are unwritten again."""
        if start >= end:
            return
        self.take_away(start, end)
        place = bisect_left(self._starts, start)
        self._starts.insert(place, start)
        self._ends.insert(place, end)

    def _met(self, start: int, end: int) -> tuple[int, int]:
        """The first range that has bytes in [start, end), and the place behind the last."""
        first = bisect_right(self._ends, start)
        return first, first if start >= end else max(first, bisect_left(self._starts, end))
