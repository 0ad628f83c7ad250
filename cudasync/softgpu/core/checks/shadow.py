"""Cellar. Shadow memory: the last writers of each byte of an allocation, and the reads since.

Accesses arrive here in an order that agrees with happens-before. So an access need only be compared
with the last writes and the reads since: a race hidden by a later race is reported with that one.
Two strong accesses (atomics, volatile and the like, waits for and writes of values) do not race
with each other.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import TypeAlias

    from cudasync.softgpu.core.checks.findings import Access
    from cudasync.softgpu.core.checks.order import Stamp

    # Of one range of bytes: the last writes, which are unordered among each other, and the reads.
    State: TypeAlias = tuple[tuple["Touch", ...], tuple["Touch", ...]]


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
    """The bytes of one allocation, as ranges with the same history."""

    def __init__(self, start: int, end: int) -> None:
        self._starts = [start]
        self._ends = [end]
        self._states: list[State] = [((), ())]

    def take(
        self, touch: Touch, ranges: Iterable[tuple[int, int]]
    ) -> Iterator[tuple[Touch, int, int]]:
        """Note an access; yield each earlier access that it races with, and the bytes."""
        # Most ranges have the same history: for each, what it races with and what is left of it.
        # The history itself is kept so that no other object gets its identity.
        known: dict[int, tuple[State, list[Touch], State]] = {}
        behind = 0
        for start, end in ranges:
            first = self._cut_at(start, behind + 1)
            behind = self._cut_at(end, first + 1)
            for index in range(first, behind):
                state = self._states[index]
                found = known.get(id(state))
                if found is None:
                    writes, reads = state
                    others = (*writes, *reads) if touch.is_write else writes
                    racing = [other for other in others if touch.races(other)]
                    found = known[id(state)] = state, racing, _after(touch, writes, reads)
                for other in found[1]:
                    yield other, self._starts[index], self._ends[index]
                self._states[index] = found[2]

    def writers(self, ranges: Iterable[tuple[int, int]]) -> list[Stamp]:
        """The last writers of these bytes."""
        return [
            write.stamp
            for start, end in ranges
            for index in self._cut(start, end)
            for write in self._states[index][0]
        ]

    def _cut(self, start: int, end: int) -> range:
        """The indices of the ranges in [start, end), cut so that they begin and end there."""
        first = self._cut_at(start)
        return range(first, self._cut_at(end))

    def _cut_at(self, address: int, guess: int = -1) -> int:
        """The index of the range that begins at `address`, or of the next range behind it.

        `guess` is the likely index if the range was cut there before.
        """
        starts, ends = self._starts, self._ends
        if 0 <= guess < len(starts) and starts[guess] == address:
            return guess
        index = bisect_right(starts, address) - 1
        if index < 0:
            return 0
        if starts[index] == address:
            return index
        if ends[index] <= address:
            return index + 1
        starts.insert(index + 1, address)
        ends.insert(index, address)
        self._states.insert(index + 1, self._states[index])
        return index + 1


def _after(touch: Touch, writes: tuple[Touch, ...], reads: tuple[Touch, ...]) -> State:
    if touch.is_write:
        kept: tuple[Touch, ...] = ()
        if touch.is_strong:
            kept = tuple(w for w in writes if not w.stamp.is_before(touch.stamp))
        return (*kept, touch), ()
    old = tuple(read for read in reads if not read.stamp.is_before(touch.stamp))
    return writes, (*old, touch)
