"""Cellar. The bytes of an allocation that nobody has written: sorted, disjoint ranges."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


class Unwritten:
    """A set of bytes."""

    def __init__(self, ranges: Iterable[tuple[int, int]]) -> None:
        self._ranges = list(ranges)

    def within(self, start: int, end: int) -> list[tuple[int, int]]:
        """The unwritten ranges in [start, end)."""
        return [
            (max(low, start), min(high, end))
            for low, high in self._ranges
            if low < end and start < high
        ]

    def take_away(self, start: int, end: int) -> None:
        """Note that these bytes are written."""
        left: list[tuple[int, int]] = []
        for low, high in self._ranges:
            left += [
                (a, b)
                for a, b in ((low, min(high, start)), (max(low, end), high))
                if a < b and ((low < end and start < high) or (a, b) == (low, high))
            ]
        self._ranges = sorted(set(left))

    def add(self, start: int, end: int) -> None:
        """Note that these bytes are unwritten again."""
        self.take_away(start, end)
        self._ranges = sorted([*self._ranges, (start, end)])
