"""Floor 2. The interval map: byte ranges of the address space, and the history of each.

Only the combiner changes the map, by one assignment to a slice of `entries` for each region.
Invariants:
- ranges are disjoint, sorted and not empty;
- bytes in no range have no history;
- after `write`, exactly one range covers the region;
- a gap stands for bytes that no op has named, and is never in `exact`;
- returned histories belong to the map's epoch: copies replace histories of an older epoch;
- a history stands for one range as long as it lives, so a split copies it for each part: a
  successor whose map predates the split may still use it for the whole range;
- `exact` maps some regions that are exactly a range of the map to its history, and some regions
  that touch no range to None.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from cudasync.engine.hazards.all_memory import Gap, overwrite_everywhere, read_everywhere
from cudasync.engine.hazards.history import History

if TYPE_CHECKING:
    from cudasync.engine.op import Op


class Region(NamedTuple):
    """The bytes [start, end) of the unified address space."""

    start: int
    end: int


class Gapped(Region):
    """The span of a view that leaves bytes out in between: equal to the `Region` of the span."""

    __slots__ = ()


class Everywhere(Region):
    """All memory from `start` to `end`, of any owner: see `all_memory`."""

    __slots__ = ()


def keep_what_lies_between(
    only_read: tuple[Region, ...], updated: tuple[Region, ...], written: tuple[Region, ...]
) -> tuple[tuple[Region, ...], tuple[Region, ...], tuple[Region, ...]]:
    """The same accesses, but an overwrite of a view with gaps counts as an update of its span.

    The bytes in the gaps keep their old value. If a failed op should have written them, an
    overwrite of the span would hide the failure.
    """
    gapped = tuple([region for region in written if region.__class__ is Gapped])
    if gapped:
        updated += gapped
        written = tuple([region for region in written if region.__class__ is not Gapped])
    return only_read, updated, written


Entry: TypeAlias = "tuple[int, int, History]"

# The map is first swept at this many ranges, and later whenever it has doubled.
SWEEP = 1024
# The largest size of `exact`; a full `exact` is cleared.
MOST_EXACT = 1 << 14


class IntervalMap:
    """An interval map from byte ranges to histories."""

    __slots__ = ("entries", "epoch", "exact", "latest", "sweep_at")

    def __init__(self, epoch: int = 0, entries: list[Entry] | None = None) -> None:
        self.epoch = epoch
        self.entries: list[Entry] = [] if entries is None else entries
        # Most arrays are used whole, again and again: then one look-up suffices. Each change of the
        # ranges makes a new dict, so histories found in the same dict stay valid.
        self.exact: dict[Region, History | None] = {}
        # The number of the last entered op if its push used `log.histories.Known`, else -1. Every
        # change of a history sets it first.
        self.latest = -1
        self.sweep_at = max(SWEEP, 2 * len(self.entries))

    def __len__(self) -> int:
        return len(self.entries)

    def copy(self, epoch: int) -> IntervalMap:
        """The same map for another epoch; one C call, so it is consistent."""
        twin = IntervalMap(epoch, self.entries.copy())
        # Not from the present length: with frequent takeovers the map would never be swept.
        twin.sweep_at = self.sweep_at
        return twin

    def read(self, region: Region) -> list[History]:
        """The histories that cover `region`, split at its ends; bytes without one get a new one."""
        start, end = region
        if start >= end:
            return []
        if region.__class__ is Everywhere:
            return read_everywhere(self, region)
        known = self.find(region)
        if known is not None:
            return [known]
        entries = self.entries
        index = bisect_left(entries, (start,))
        first, last = self.touched(region, index)
        pieces: list[Entry] = []
        covered: list[History] = []
        position = start
        for low, high, history in entries[first:last]:
            if low < start:
                pieces.append((low, start, history.copy(self.epoch)))
            if position < low:
                pieces.append(self._fresh(position, low, covered))
            is_whole = start <= low and high <= end
            own = history if is_whole and history.epoch == self.epoch else history.copy(self.epoch)
            if isinstance(own, Gap):
                own = own.named()
            covered.append(own)
            pieces.append((max(low, start), min(high, end), own))
            if high > end:
                pieces.append((end, high, history.copy(self.epoch)))
            position = high
        if position < end:
            pieces.append(self._fresh(position, end, covered))
        self.exact = {}
        entries[first:last] = pieces
        return covered

    def read_all(self, regions: tuple[Region, ...]) -> list[History]:
        """The histories that cover any of `regions`, which may overlap each other."""
        if len(regions) > 1:
            # All splits first: a later region may split a history returned for an earlier one.
            for region in regions:
                self.read(region)
        return [history for region in regions for history in self.read(region)]

    def find(self, region: Region) -> History | None:
        """The history that stands for exactly `region`, unless it is a gap; else None."""
        known = self.exact.get(region)
        if known is None:
            entries = self.entries
            index = bisect_left(entries, (region.start,))
            if index < len(entries):
                low, high, history = entries[index]
                if low == region.start and high == region.end and not history.is_gap:
                    if history.epoch != self.epoch:
                        history = history.copy(self.epoch)
                        entries[index] = low, high, history
                    known = self.exact[region] = history
        return known

    def note_untouched(self, region: Region) -> None:
        """Note in `exact` that no range touches `region`, until the ranges change."""
        if len(self.exact) >= MOST_EXACT:
            # A program that always uses new memory may change no range.
            self.exact = {}
        self.exact[region] = None

    def peek(self, region: Region) -> list[History]:
        """The histories that touch `region`, without a split or an addition."""
        if region.start >= region.end:
            return []
        first, last = self.touched(region)
        return [history for _, _, history in self.entries[first:last]]

    def write(self, region: Region, history: History) -> None:
        """Let `history` alone stand for `region`; forget the histories that it overwrites."""
        if region.start < region.end:
            self._replace(region, [(region.start, region.end, history)])

    def overwrite(self, region: Region, op: Op) -> None:
        """Let `op` be the writer of all of `region`."""
        if region.__class__ is Everywhere:
            overwrite_everywhere(self, region, op)
            return
        known = self.find(region)
        if known is not None:
            known.overwrite(op)
        else:
            self.write(region, History(self.epoch, op))

    def forget(self, region: Region) -> None:
        """Drop the history of `region`: its memory was freed or allocated anew."""
        if region.start < region.end:
            self._replace(region, [])

    def sweep(self) -> None:
        """Once the map has doubled, drop the ranges with a history that no longer matters."""
        if len(self.entries) >= self.sweep_at:
            self.exact = {}
            self.entries = [entry for entry in self.entries if not entry[2].is_quiet]
            self.sweep_at = max(SWEEP, 2 * len(self.entries))

    def _replace(self, region: Region, pieces: list[Entry]) -> None:
        start, end = region
        first, last = self.touched(region)
        touched = self.entries[first:last]
        if touched:
            low, _, history = touched[0]
            if low < start:
                pieces.insert(0, (low, start, history.copy(self.epoch)))
            _, high, history = touched[-1]
            if high > end:
                pieces.append((end, high, history.copy(self.epoch)))
        self.exact = {}
        self.entries[first:last] = pieces

    def touched(self, region: tuple[int, int], index: int | None = None) -> tuple[int, int]:
        """The indices from the first to behind the last range that shares a byte with `region`."""
        entries = self.entries
        start, end = region
        first = bisect_left(entries, (start,)) if index is None else index
        if first > 0 and entries[first - 1][1] > start:
            first -= 1
        return first, bisect_left(entries, (end,), first)

    def _fresh(self, start: int, end: int, covered: list[History]) -> Entry:
        history = History(self.epoch)
        covered.append(history)
        return start, end, history
