"""Floor 2. The histories that an op touches, in the version of an epoch.

Invariant: a history of an older epoch is copied before use, so nobody sees later writes of an
overtaken combiner. The largest epoch counts: an overtaken combiner can only add smaller epochs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from cudasync.engine.hazards.history import History
from cudasync.engine.hazards.interval_map import Everywhere

if TYPE_CHECKING:
    from typing import TypeAlias

    from cudasync.engine.hazards.interval_map import IntervalMap
    from cudasync.engine.hazards.variable import Var
    from cudasync.engine.op_classes import DeviceOp

    # The map's `exact`; histories read; histories written; how many of the written ones, from the
    # first on, are also read and may be missing among the read ones.
    Found: TypeAlias = tuple[object, list[History], list[History], int]

T = TypeVar("T")


class Known:
    """The histories that a launch touches, valid as long as the ranges are unchanged.

    Histories of variables are not included, since they may be forgotten (`let_rest`).
    """

    __slots__ = ("found", "latest")

    def __init__(self) -> None:
        self.found: Found = (None, [], [], 0)
        # The number of the latest op that was pushed with these; -2 if unknown.
        self.latest = -2


class Made:
    """`latest` becomes a new object whenever a variable gets a history.

    Only combiners make histories, and histories of an overtaken combiner do not count. So if a
    combiner finds the same object as at an earlier look, by any thread, no history was made in
    between. A reader takes the object first; a combiner that makes a history stores it last.
    """

    __slots__ = ("latest",)

    def __init__(self) -> None:
        self.latest = object()


MADE = Made()


def find(op: DeviceOp, ranges: IntervalMap) -> Found | None:
    """The histories that `op` touches; None if a written range has several histories, or a touched
    range is a gap.

    The only possible change is a split of ranges at the ends of the ranges of `op`.
    """
    assert op._regions is not None
    only_read, updated, written = op._regions
    exact = ranges.exact
    known = exact.get
    reads: list[History] = []
    writes: list[History] = []
    for region in only_read:
        history = known(region) or ranges.find(region)
        if history is None:
            return _find_split(op, ranges)
        reads.append(history)
    for region in updated:
        history = known(region) or ranges.find(region)
        if history is None:
            return _find_split(op, ranges)
        writes.append(history)
    for region in written:
        history = known(region) or ranges.find(region)
        if history is None:
            return _find_split(op, ranges)
        writes.append(history)
    epoch = ranges.epoch
    for variable in op._reads:
        reads.append(history_of(variable, epoch))
    for variable in op._writes:
        writes.append(history_of(variable, epoch))
    return exact, reads, writes, len(updated)


def _find_split(op: DeviceOp, ranges: IntervalMap) -> Found | None:
    """`find` for ranges that are parts of map ranges, or consist of several."""
    assert op._regions is not None
    only_read, updated, written = op._regions
    if Everywhere in map(type, only_read):
        # Not all histories that it finds poison it: see `non_poisoning_reads`.
        return None
    # Before any look-up: `sweep` forgets histories, and a later split would change found ones.
    ranges.sweep()
    for region in written:
        ranges.read(region)
    reads = ranges.read_all(only_read + updated)
    if any(each.is_gap and each.writer is not None for each in reads):
        return None
    writes: list[History] = []
    for region in updated + written:
        if region.start < region.end:
            history = ranges.find(region)
            if history is None:
                return None
            writes.append(history)
    epoch = ranges.epoch
    reads += [history_of(variable, epoch) for variable in op._reads]
    writes += [history_of(variable, epoch) for variable in op._writes]
    return ranges.exact, reads, writes, 0


def history_of(variable: Var, epoch: int) -> History:
    """The history of a variable in `epoch`, copied at the first need."""
    histories = variable._histories
    history = histories.get(epoch)
    if history is None:
        known = latest(histories) if histories else None
        if known is None or known.epoch < max(list(variable._rested), default=0):
            fresh = History(epoch)
        else:
            fresh = known.copy(epoch)
        history = histories.setdefault(epoch, fresh)
        # After it: a thread that sees the new mark also sees the history.
        MADE.latest = object()
        if len(histories) > 1:
            drop_older(histories, epoch)
    return history


def let_rest(variable: Var, epoch: int) -> None:
    """Forget the history of a variable, which is at rest in `epoch`.

    Nobody may keep the history: see `Known`.
    """
    # First the mark: it voids histories of older epochs that overtaken combiners add.
    variable._rested[epoch] = None
    if len(variable._rested) > 1:
        drop_older(variable._rested, epoch)
    variable._histories.pop(epoch, None)


def ranges_of(by_epoch: dict[int, IntervalMap], epoch: int) -> IntervalMap:
    """The interval map of `epoch`, copied at the first need."""
    ranges = by_epoch.get(epoch)
    if ranges is None:
        known = latest(by_epoch)
        assert known is not None
        ranges = by_epoch.setdefault(epoch, known.copy(epoch))
        drop_older(by_epoch, epoch)
    return ranges


def latest(by_epoch: dict[int, T]) -> T | None:
    """The value of the largest epoch; None if there is none."""
    while by_epoch:
        # Not one step: an overtaken combiner may drop the largest in favour of a larger one.
        found = by_epoch.get(max(list(by_epoch), default=0))
        if found is not None:
            return found
    return None


def drop_older(by_epoch: dict[int, T], epoch: int) -> None:
    """Drop the values of epochs before `epoch`."""
    # A combiner of an older epoch may add its own again: the largest epoch counts.
    for each in list(by_epoch):
        if each < epoch:
            by_epoch.pop(each, None)
