"""Floor 2. Byte ranges of the one address space, and the state of each.

True under `plan.LOCK`, which every method assumes to be held:
- ranges are disjoint, sorted, non-empty; `starts[i] < ends[i] <= starts[i + 1]`;
- bytes in no range have no history;
- after `write(lo, hi)`, exactly one range covers [lo, hi).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import NamedTuple

from cudasync.engine.state import State


class Region(NamedTuple):
    """The bytes [start, end) of the unified address space."""

    start: int
    end: int


# The map is first swept at this many ranges; from then on whenever it has doubled.
SWEEP = 1024


class RangeMap:
    """An interval map from byte ranges to states."""

    __slots__ = ("ends", "starts", "states", "sweep_at")

    def __init__(self) -> None:
        self.sweep_at = SWEEP
        self.starts: list[int] = []
        self.ends: list[int] = []
        self.states: list[State] = []

    def __len__(self) -> int:
        return len(self.starts)

    def read(self, region: Region) -> list[State]:
        """The states that cover `region`, split at its ends; gaps are given fresh states."""
        start, end = region
        if start >= end:
            return []
        first = self._cut(start)
        last = self._cut(end)
        covered = self.states[first:last]
        position = start
        index = first
        while position < end:
            if index < len(self.starts) and self.starts[index] == position:
                position = self.ends[index]
                index += 1
                continue
            gap_end = min(end, self.starts[index]) if index < len(self.starts) else end
            fresh = State()
            self._insert(index, position, gap_end, fresh)
            covered.append(fresh)
            position = gap_end
            index += 1
        return covered

    def peek(self, region: Region) -> list[State]:
        """The states that touch `region`, nothing split and nothing added."""
        first = bisect_right(self.ends, region.start)
        last = bisect_left(self.starts, region.end)
        return self.states[first:last]

    def write(self, region: Region, state: State) -> None:
        """Let `state` alone stand for `region`; what it overwrites is forgotten."""
        self.forget(region)
        if region.start < region.end:
            index = bisect_left(self.starts, region.start)
            self._insert(index, region.start, region.end, state)

    def forget(self, region: Region) -> None:
        """Drop the history of `region`: its memory was freed or handed out anew."""
        start, end = region
        if start >= end:
            return
        first = self._cut(start)
        last = self._cut(end)
        del self.starts[first:last], self.ends[first:last], self.states[first:last]

    def sweep(self) -> None:
        """Once the map has doubled, drop the ranges whose history no longer matters."""
        if len(self.starts) < self.sweep_at:
            return
        kept = [
            entry
            for entry in zip(self.starts, self.ends, self.states, strict=True)
            if not entry[2].is_quiet
        ]
        self.starts = [entry[0] for entry in kept]
        self.ends = [entry[1] for entry in kept]
        self.states = [entry[2] for entry in kept]
        self.sweep_at = max(SWEEP, 2 * len(kept))

    def _cut(self, address: int) -> int:
        """Split the range that holds `address` inside it; the index of the first at or after."""
        index = bisect_left(self.starts, address)
        if index > 0 and self.ends[index - 1] > address:
            end = self.ends[index - 1]
            self.ends[index - 1] = address
            self._insert(index, address, end, self.states[index - 1].copy())
        return index

    def _insert(self, index: int, start: int, end: int, state: State) -> None:
        self.starts.insert(index, start)
        self.ends.insert(index, end)
        self.states.insert(index, state)
