"""Floor 2. Accesses to all memory, by kernels that follow pointers.

Such an op is ordered with every op on bytes there, of any owner, also on memory that no op has
named yet. Memory in no range of the map gets its own kind of history for that: a `Gap`. A gap
orders and does not poison: nobody knows whether the op touched bytes that are named later, and most
of these are new memory. The library's device memory is no gap, named or not.

A failure in foreign memory, or in memory lost in a reset, does not poison the op: mostly nobody can
reach that memory any more. Nor does memory of a recording that was not launched: it holds no result
that is missing. The failure stays for ops that name the memory: see `non_poisoning_reads`.
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
        """The history for an op that names the memory: a plain one once the writer is over."""
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
    """All histories in `region`; bytes without one get one. Splits ranges only at its ends."""
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
    """Let `op` be the writer of each range of `region`, which was read before."""
    if region.start >= region.end:
        return
    first, last = ranges.touched(region)
    for entry in ranges.entries[first:last]:
        if _is_wreck(entry):
            # Later readers still get the failure; later writers come after `op`.
            entry[2].add_reader(op)
        else:
            entry[2].overwrite(op)


def wrecks(ranges: IntervalMap, regions: Iterable[Region]) -> list[History]:
    """Histories of memory that a failed op should have written, and that is not ours (any more);
    and of memory that has no value yet."""
    found: list[History] = []
    for region in regions:
        first, last = ranges.touched(region)
        found += [entry[2] for entry in ranges.entries[first:last] if _is_wreck(entry)]
    return found


def _is_wreck(entry: Entry) -> bool:
    low, high, history = entry
    writer = history.writer
    if writer is None or history.is_gap or not writer.is_poisoned:
        return False
    if writer.is_fence:
        # The memory was made in a recording, and no launch was pushed.
        return True
    return writer.finished and not ALLOCATIONS.between(low, high)


def _split(ranges: IntervalMap, place: int) -> None:
    """Split the range across `place`, if there is one."""
    first, last = ranges.touched((place, place + 1))
    if first < last:
        low, high, history = ranges.entries[first]
        if low < place < high:
            # Two copies: see `IntervalMap`.
            halves = [(low, place), (place, high)]
            ranges.exact = {}
            ranges.entries[first:last] = [(*half, history.copy(ranges.epoch)) for half in halves]


def _cut(start: int, end: int, gap: History) -> list[Entry]:
    """Ranges for [start, end): our allocations get plain histories with the ops of `gap`, and the
    rest is `gap`."""
    pieces: list[Entry] = []
    for each in ALLOCATIONS.between(start, end):
        if each.ordinal is None:
            # Nobody reports the end of pinned memory that no op named.
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
