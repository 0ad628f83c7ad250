"""Cellar. Shadow memory: the last writers of each byte of an allocation, and the reads since.

Accesses arrive here in an order that agrees with happens-before. So an access need only be compared
with the last writes and the reads since: a race hidden by a later race is reported with that one.
Two strong accesses (atomics, volatile and the like, waits for and writes of values) do not race
with each other.
"""

from __future__ import annotations

from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING

import numpy as np

from cudasync.softgpu.interface.byte_ranges import bounds_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import TypeAlias

    from numpy.typing import NDArray

    from cudasync.softgpu.core.checks.findings import Access
    from cudasync.softgpu.core.checks.order import Stamp
    from cudasync.softgpu.interface.byte_ranges import Addresses, ByteRanges

    # Of one range of bytes: the last writes, which are unordered among each other, and the reads.
    State: TypeAlias = tuple[tuple["Touch", ...], tuple["Touch", ...]]

# With fewer histories, unused ones are kept.
_LEAST_STATES = 64


@dataclass(slots=True, eq=False)
class Touch:
    """One access to memory: its time, its kind, and its description."""

    stamp: Stamp
    access: Access
    is_write: bool
    is_strong: bool = False

    def races(self, other: Touch) -> bool:
        """True if nothing orders the earlier seen `other` before this access."""
        return not (self.is_strong and other.is_strong) and not other.stamp.is_before(self.stamp)


class Shadow:
    """The bytes of one allocation, as ranges with the same history.

    A range has the number of its history, since a launch may leave millions of ranges and few
    histories.
    """

    def __init__(self, start: int, end: int) -> None:
        self._starts: Addresses = np.array([start], np.int64)
        self._end = end
        # By range: the place of its history in the table.
        self._numbers: NDArray[np.int32] = np.zeros(1, np.int32)
        self._table: list[State] = [((), ())]
        self._places: dict[State, int] = {((), ()): 0}
        # From this length of the table on, unused histories are dropped.
        self._most = _LEAST_STATES

    def take(self, touch: Touch, ranges: ByteRanges) -> Iterator[tuple[Touch, int, int]]:
        """Note an access. Yield each earlier access that it races with, and their first bytes.

        An earlier access comes once for each history that it is in, by address.
        """
        if not len(ranges):
            return
        low, high = self._span(ranges)
        if len(ranges) == 1 and high - low == 1:
            start, end = next(iter(ranges))
            if start == self._starts[low] and end == self._end_of(high):
                racing, after = self._taken(touch, int(self._numbers[low]))
                yield from ((other, start, end) for other in racing)
                self._numbers[low] = after
                self._forget()
                return
        bounds, numbers, is_touched = self._cut(low, high, ranges)
        touched = numbers[is_touched]
        lookup = np.empty(len(self._table), np.int32)
        found: list[tuple[int, list[Touch]]] = []
        for number in np.flatnonzero(np.bincount(touched)).tolist():
            racing, lookup[number] = self._taken(touch, number)
            if racing:
                found.append((int(np.argmax(is_touched & (numbers == number))), racing))
        for first, racing in sorted(found, key=itemgetter(0)):
            is_last = first + 1 == len(bounds)
            end = self._end_of(high) if is_last else int(bounds[first + 1])
            yield from ((other, int(bounds[first]), end) for other in racing)
        numbers[is_touched] = lookup[touched]
        # Ranges between which nothing differs any more are one.
        is_kept = np.concatenate(([True], numbers[1:] != numbers[:-1]))
        self._starts = np.concatenate((self._starts[:low], bounds[is_kept], self._starts[high:]))
        self._numbers = np.concatenate(
            (self._numbers[:low], numbers[is_kept], self._numbers[high:])
        )
        self._forget()

    def writers(self, ranges: ByteRanges) -> list[Stamp]:
        """The last writers of these bytes."""
        if not len(ranges):
            return []
        _, numbers, is_touched = self._cut(*self._span(ranges), ranges)
        found = np.unique(numbers[is_touched]).tolist()
        return [write.stamp for number in found for write in self._table[number][0]]

    def _span(self, ranges: ByteRanges) -> tuple[int, int]:
        """The indices of the ranges from the first to the last of these bytes."""
        low = int(np.searchsorted(self._starts, ranges.starts[0], "right")) - 1
        return max(0, low), int(np.searchsorted(self._starts, ranges.ends[-1], "left"))

    def _end_of(self, high: int) -> int:
        """The end of the range before the index `high`."""
        return int(self._starts[high]) if high < len(self._starts) else self._end

    def _cut(
        self, low: int, high: int, ranges: ByteRanges
    ) -> tuple[Addresses, NDArray[np.int32], NDArray[np.bool_]]:
        """The ranges from index `low` to `high`, cut at the given ranges.

        Returns their starts, their numbers, and which of them are in the given ranges.
        """
        starts = self._starts[low:high]
        ends = ranges.ends[:-1] if int(ranges.ends[-1]) >= self._end_of(high) else ranges.ends
        bounds = bounds_of(starts, ranges.starts, ends)
        numbers = self._numbers[low:high][np.searchsorted(starts, bounds, "right") - 1]
        return bounds, numbers, ranges.cover(bounds)

    def _taken(self, touch: Touch, number: int) -> tuple[list[Touch], int]:
        """What an access races with in a range with this history, and the history afterwards."""
        writes, reads = self._table[number]
        others = (*writes, *reads) if touch.is_write else writes
        racing = [other for other in others if touch.races(other)]
        state = _after(touch, writes, reads)
        found = self._places.get(state)
        if found is None:
            found = self._places[state] = len(self._table)
            self._table.append(state)
        return racing, found

    def _forget(self) -> None:
        """Drop the histories that no range has, once they may be most of the table."""
        if len(self._table) <= self._most:
            return
        used = np.flatnonzero(np.bincount(self._numbers))
        lookup = np.empty(len(self._table), np.int32)
        lookup[used] = np.arange(len(used))
        self._numbers = lookup[self._numbers]
        self._table = [self._table[number] for number in used.tolist()]
        self._places = {state: number for number, state in enumerate(self._table)}
        self._most = _LEAST_STATES + 2 * len(used)


def _after(touch: Touch, writes: tuple[Touch, ...], reads: tuple[Touch, ...]) -> State:
    if touch.is_write:
        kept: tuple[Touch, ...] = ()
        if touch.is_strong:
            kept = tuple(w for w in writes if not w.stamp.is_before(touch.stamp))
        return (*kept, touch), ()
    old = tuple(read for read in reads if not read.stamp.is_before(touch.stamp))
    return writes, (*old, touch)
