"""Cellar. Ranges of bytes, many at once: sorted, disjoint and not empty, as two arrays.

A kernel that scatters leaves millions of short ranges, too many for a Python object each. This
module is imported where records of accesses are read, and never at the start: NumPy loads as slowly
as the whole driver.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import TypeAlias

    from numpy.typing import NDArray

    Addresses: TypeAlias = NDArray[np.int64]


class ByteRanges:
    """[starts[0], ends[0]) and so on. It never changes."""

    __slots__ = ("ends", "starts")

    def __init__(self, starts: Addresses, ends: Addresses) -> None:
        self.starts = starts
        self.ends = ends

    @classmethod
    def of(cls, pairs: Iterable[tuple[int, int]]) -> ByteRanges:
        """The bytes of these ranges, which may be in any order, overlap and be empty."""
        pairs = list(pairs)
        if len(pairs) == 1 and pairs[0][0] < pairs[0][1]:
            # Nearly all commands touch one range.
            return cls(np.array([pairs[0][0]]), np.array([pairs[0][1]]))
        flat = np.array([each for each in pairs if each[0] < each[1]], np.int64).reshape(-1, 2)
        starts, ends = flat[:, 0], flat[:, 1]
        if len(flat) > 1 and (starts[1:] < ends[:-1]).any():
            order = np.argsort(starts, kind="stable")
            starts, ends = starts[order], np.maximum.accumulate(ends[order])
            is_first = np.concatenate(([True], starts[1:] > ends[:-1]))
            return cls(starts[is_first], ends[np.concatenate((is_first[1:], [True]))])
        return cls(starts, ends)

    def __len__(self) -> int:
        return len(self.starts)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return zip(self.starts.tolist(), self.ends.tolist(), strict=True)

    def within(self, start: int, end: int) -> ByteRanges:
        """The parts in [start, end)."""
        if start >= end:
            return NOTHING
        low = int(np.searchsorted(self.ends, start, "right"))
        high = max(low, int(np.searchsorted(self.starts, end, "left")))
        return ByteRanges(
            np.maximum(self.starts[low:high], start), np.minimum(self.ends[low:high], end)
        )

    def cover(self, places: Addresses) -> NDArray[np.bool_]:
        """Whether the byte at each of these addresses is in a range."""
        begun = np.searchsorted(self.starts, places, "right")
        return begun > np.searchsorted(self.ends, places, "right")

    def joined(self) -> ByteRanges:
        """The same bytes, with ranges joined that follow each other without a gap."""
        if len(self) < 2:
            return self
        is_apart = self.starts[1:] != self.ends[:-1]
        return ByteRanges(
            self.starts[np.concatenate(([True], is_apart))],
            self.ends[np.concatenate((is_apart, [True]))],
        )


NOTHING = ByteRanges.of(())


def bounds_of(*sorted_addresses: Addresses) -> Addresses:
    """All these addresses, in order and once each."""
    # A stable sort merges what is sorted already.
    found = np.sort(np.concatenate(sorted_addresses), kind="stable")
    return found[np.concatenate(([True], found[1:] != found[:-1]))] if len(found) else found


def union(one: ByteRanges, other: ByteRanges) -> ByteRanges:
    """The bytes of both."""
    bounds = bounds_of(one.starts, one.ends, other.starts, other.ends)
    return _runs(bounds, one.cover(bounds) | other.cover(bounds))


def difference(one: ByteRanges, other: ByteRanges) -> ByteRanges:
    """The bytes of `one` that `other` does not have."""
    bounds = bounds_of(one.starts, one.ends, other.starts, other.ends)
    return _runs(bounds, one.cover(bounds) & ~other.cover(bounds))


def intersection(one: ByteRanges, other: ByteRanges) -> ByteRanges:
    """The bytes that both have."""
    bounds = bounds_of(one.starts, one.ends, other.starts, other.ends)
    return _runs(bounds, one.cover(bounds) & other.cover(bounds))


def _runs(bounds: Addresses, is_in: NDArray[np.bool_]) -> ByteRanges:
    """The pieces between two bounds that are in, joined. Nothing is in behind the last bound."""
    if not len(bounds):
        return NOTHING
    was_in = np.concatenate(([False], is_in[:-1]))
    return ByteRanges(bounds[is_in & ~was_in], bounds[was_in & ~is_in])
