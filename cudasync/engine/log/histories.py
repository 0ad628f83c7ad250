"""Floor 2. The histories that an op touches, as the combiner of an epoch knows them.

True throughout: a history of an older epoch is copied before it is used, so what a combiner that
was overtaken may still write is seen by nobody. The largest epoch is the one that counts: who was
overtaken can only add smaller ones.
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

    # The map's `exact`; what is read; what is written; how many of these, the first, are read, too,
    # and may not be among the former.
    Found: TypeAlias = tuple[object, list[History], list[History], int]

T = TypeVar("T")


class Known:
    """The histories that a launch touches, found once, as long as the ranges are as they were.

    Not those of variables, which may be forgotten (`let_rest`).
    """

    __slots__ = ("found", "latest")

    def __init__(self) -> None:
        self.found: Found = (None, [], [], 0)
        # The number of the latest op that was pushed by these; -2 where that is not known.
        self.latest = -2


class Made:
    """`latest` is another object whenever a variable has got a history since.

    Only combiners make histories, and one that was overtaken has made none that counts. So a
    combiner that finds the object of an earlier look, by whichever thread, knows that none was made
    in between. Who looks takes the object first; who makes a history stores it last.
    """

    __slots__ = ("latest",)

    def __init__(self) -> None:
        self.latest = object()


MADE = Made()


def find(op: DeviceOp, ranges: IntervalMap) -> Found | None:
    """The histories that `op` touches; None if one of the ranges that it writes has several, or one
    that it touches is a gap.

    It changes nothing, but that ranges may be split where those of `op` end.
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
    """`find` for ranges that are parts of others, or made of several."""
    assert op._regions is not None
    only_read, updated, written = op._regions
    if Everywhere in map(type, only_read):
        # Of what it finds, not all poisons it: see `unheard`.
        return None
    # Before any history is found: it forgets some, and a split takes from what was found before.
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
    """The history of a variable as the combiner of `epoch` knows it: copied at the first need."""
    histories = variable._histories
    history = histories.get(epoch)
    if history is None:
        known = latest(histories) if histories else None
        if known is None or known.epoch < max(list(variable._rested), default=0):
            fresh = History(epoch)
        else:
            fresh = known.copy(epoch)
        history = histories.setdefault(epoch, fresh)
        # Behind it: who has seen the new mark sees the history, too.
        MADE.latest = object()
        if len(histories) > 1:
            drop_older(histories, epoch)
    return history


def let_rest(variable: Var, epoch: int) -> None:
    """Forget the history of a variable, which is at rest in `epoch`.

    Nobody may keep it: see `Known`.
    """
    # First the mark: what overtaken combiners add of older epochs does not count any more.
    variable._rested[epoch] = None
    if len(variable._rested) > 1:
        drop_older(variable._rested, epoch)
    variable._histories.pop(epoch, None)


def ranges_of(by_epoch: dict[int, IntervalMap], epoch: int) -> IntervalMap:
    """The ranges as the combiner of `epoch` knows them: copied at the first need."""
    ranges = by_epoch.get(epoch)
    if ranges is None:
        known = latest(by_epoch)
        assert known is not None
        ranges = by_epoch.setdefault(epoch, known.copy(epoch))
        drop_older(by_epoch, epoch)
    return ranges


def latest(by_epoch: dict[int, T]) -> T | None:
    """What belongs to the largest epoch, None if there is nothing."""
    while by_epoch:
        # Not one step: a combiner that was overtaken may drop the largest, for a larger one.
        found = by_epoch.get(max(list(by_epoch), default=0))
        if found is not None:
            return found
    return None


def drop_older(by_epoch: dict[int, T], epoch: int) -> None:
    """Drop what belongs to epochs before `epoch`."""
    # A combiner of an older epoch may add its own once more: the largest is the one that counts.
    for each in list(by_epoch):
        if each < epoch:
            by_epoch.pop(each, None)
