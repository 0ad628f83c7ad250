"""Floor 2. Byte ranges of the one address space, and the state of each.

Only the planner changes the map, by one assignment to a slice of `entries` for each region:
- ranges are disjoint, sorted and not empty;
- bytes in no range have no history;
- after `write`, exactly one range covers the region;
- states handed out belong to the map's epoch: those of an older one are replaced by copies.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import NamedTuple, TypeAlias

from cudasync.engine.state import State


class Region(NamedTuple):
    """The bytes [start, end) of the unified address space."""

    start: int
    end: int


Entry: TypeAlias = "tuple[int, int, State]"

# The map is first swept at this many ranges; from then on whenever it has doubled.
SWEEP = 1024


class RangeMap:
    """An interval map from byte ranges to states."""

    __slots__ = ("entries", "epoch", "sweep_at")

    def __init__(self, epoch: int = 0, entries: list[Entry] | None = None) -> None:
        self.epoch = epoch
        self.entries: list[Entry] = [] if entries is None else entries
        self.sweep_at = max(SWEEP, 2 * len(self.entries))

    def __len__(self) -> int:
        return len(self.entries)

    def copy(self, epoch: int) -> RangeMap:
        """The same for another epoch; one C call, so it is of one moment."""
        return RangeMap(epoch, self.entries.copy())

    def read(self, region: Region) -> list[State]:
        """The states that cover `region`, split at its ends; gaps are given fresh states."""
        start, end = region
        if start >= end:
            return []
        entries = self.entries
        index = bisect_left(entries, (start,))
        if index < len(entries):
            # Most often an array is used whole, again and again.
            low, high, state = entries[index]
            if low == start and high == end and state.epoch == self.epoch:
                return [state]
        first, last = self._touched(region, index)
        pieces: list[Entry] = []
        covered: list[State] = []
        position = start
        for low, high, state in entries[first:last]:
            if low < start:
                pieces.append((low, start, state.copy(self.epoch)))
            if position < low:
                pieces.append(self._fresh(position, low, covered))
            own = state if state.epoch == self.epoch else state.copy(self.epoch)
            covered.append(own)
            pieces.append((max(low, start), min(high, end), own))
            if high > end:
                pieces.append((end, high, own.copy(self.epoch)))
            position = high
        if position < end:
            pieces.append(self._fresh(position, end, covered))
        entries[first:last] = pieces
        return covered

    def peek(self, region: Region) -> list[State]:
        """The states that touch `region`, nothing split and nothing added."""
        if region.start >= region.end:
            return []
        first, last = self._touched(region)
        return [state for _, _, state in self.entries[first:last]]

    def write(self, region: Region, state: State) -> None:
        """Let `state` alone stand for `region`; what it overwrites is forgotten."""
        if region.start < region.end:
            self._replace(region, [(region.start, region.end, state)])

    def forget(self, region: Region) -> None:
        """Drop the history of `region`: its memory was freed or handed out anew."""
        if region.start < region.end:
            self._replace(region, [])

    def sweep(self) -> None:
        """Once the map has doubled, drop the ranges whose history no longer matters."""
        if len(self.entries) >= self.sweep_at:
            self.entries = [entry for entry in self.entries if not entry[2].is_quiet]
            self.sweep_at = max(SWEEP, 2 * len(self.entries))

    def _replace(self, region: Region, pieces: list[Entry]) -> None:
        start, end = region
        first, last = self._touched(region)
        touched = self.entries[first:last]
        if touched:
            low, _, state = touched[0]
            if low < start:
                pieces.insert(0, (low, start, state.copy(self.epoch)))
            _, high, state = touched[-1]
            if high > end:
                pieces.append((end, high, state.copy(self.epoch)))
        self.entries[first:last] = pieces

    def _touched(self, region: Region, index: int | None = None) -> tuple[int, int]:
        """The indices from the first to behind the last range that shares a byte with `region`."""
        entries = self.entries
        first = bisect_left(entries, (region.start,)) if index is None else index
        if first > 0 and entries[first - 1][1] > region.start:
            first -= 1
        return first, bisect_left(entries, (region.end,), first)

    def _fresh(self, start: int, end: int, covered: list[State]) -> Entry:
        state = State(self.epoch)
        covered.append(state)
        return start, end, state
