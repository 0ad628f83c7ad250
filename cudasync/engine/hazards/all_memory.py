"""Floor 2. Accesses of all memory: what a kernel does that follows pointers.

Such an op comes after and before whatever has bytes there, also of memory that no op has named
yet, whoever's it is. What is in no range of the map gets a history of its own for that: a `Gap`.
A gap orders and does not poison: nobody knows whether the op touched what is named there later,
and most of that is new memory. Device memory of ours is no gap, named or not.

Nor is the op poisoned by a failure in memory that is not ours, or was, and went with a reset:
mostly nobody can reach that any more. The failure stays there for those who name it: see `unheard`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.driver.memory.allocations import ALLOCATIONS
from cudasync.engine.hazards.history import History

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cudasync.engine.hazards.interval_map import Entry, IntervalMap, Region
    from cudasync.engine.op import Op


class Gap(History):
    """The history of memory that no op had named when an op accessed all memory."""

    __slots__ = ()

    is_gap = True

    def copy(self, epoch: int) -> History:
        twin = Gap(epoch, self.writer)
        twin.readers = self.readers.copy()
        return twin

    def named(self) -> History:
        """The same for an op that names the memory: once the writer is over, as any other."""
        if self.writer is not None and not self.writer.finished:
            return self
        twin = History(self.epoch)
        twin.readers = self.readers.copy()
        return twin

    @property
    def is_quiet(self) -> bool:
        writer = self.writer
        return (writer is None or writer.finished) and all(each.finished for each in self.readers)


def read_everywhere(ranges: IntervalMap, region: Region) -> list[History]:
    """All histories in `region`; what has none gets one. Ranges are split at its ends only."""
    for end in region:
        _split(ranges, end)
    first, last = ranges.touched(region)
    pieces: list[Entry] = []
    is_news = False
    position = region.start
    for low, high, history in ranges.entries[first:last]:
        if position < low:
            pieces += _cut(position, low, Gap(ranges.epoch))
            is_news = True
        position = high
        own = history if history.epoch == ranges.epoch else history.copy(ranges.epoch)
        cut = _cut(low, high, own) if own.is_gap else [(low, high, own)]
        is_news = is_news or own is not history or len(cut) > 1 or cut[0][2] is not own
        pieces += cut
    if position < region.end:
        pieces += _cut(position, region.end, Gap(ranges.epoch))
        is_news = True
    if is_news:
        ranges.exact = {}
        ranges.entries[first:last] = pieces
    return [history for _, _, history in pieces]


def overwrite_everywhere(ranges: IntervalMap, region: Region, op: Op) -> None:
    """Let `op` be the writer of all of `region`, which was read, each range for itself."""
    if region.start >= region.end:
        return
    first, last = ranges.touched(region)
    for entry in ranges.entries[first:last]:
        if _is_wreck(entry):
            # Whoever reads it is told of the failure still; whoever writes it comes after `op`.
            entry[2].add_reader(op)
        else:
            entry[2].overwrite(op)


def wrecks(ranges: IntervalMap, regions: Iterable[Region]) -> list[History]:
    """The histories of what a failed op should have written and is not, or no longer, ours."""
    found: list[History] = []
    for region in regions:
        first, last = ranges.touched(region)
        found += [entry[2] for entry in ranges.entries[first:last] if _is_wreck(entry)]
    return found


def _is_wreck(entry: Entry) -> bool:
    low, high, history = entry
    writer = history.writer
    if writer is None or not writer.finished or not writer.is_poisoned or history.is_gap:
        return False
    return not ALLOCATIONS.between(low, high)


def _split(ranges: IntervalMap, place: int) -> None:
    """Let no range lie across `place`."""
    first, last = ranges.touched((place, place + 1))
    if first < last:
        low, high, history = ranges.entries[first]
        if low < place < high:
            # Two copies: see `IntervalMap`.
            halves = [(low, place), (place, high)]
            ranges.exact = {}
            ranges.entries[first:last] = [(*half, history.copy(ranges.epoch)) for half in halves]


def _cut(start: int, end: int, gap: History) -> list[Entry]:
    """Ranges for [start, end): what is ours there has a history like others, with what `gap` has,
    and the rest of it is `gap`."""
    pieces: list[Entry] = []
    for each in ALLOCATIONS.between(start, end):
        if each.ordinal is None:
            # The end of pinned memory that no op named is told to nobody.
            continue
        low, high = max(each.start, start), min(each.end, end)
        if start < low:
            pieces.append((start, low, gap.copy(gap.epoch)))
        if low < high:
            ours = History(gap.epoch, gap.writer)
            ours.readers = gap.readers.copy()
            pieces.append((low, high, ours))
        start = max(start, high)
    if start < end:
        pieces.append((start, end, gap.copy(gap.epoch) if pieces else gap))
    return pieces
