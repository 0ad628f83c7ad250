"""Floor 4, memory. Which idle block the next result of its size takes.

Reuse orders the new writer behind all earlier users of the block. That order is false if the
program does not need it: two chains with nothing in common would run one after the other, because
the second writes where the first has just read. So a result takes, in this order:

- the block that the same plan took two results ago (so that a loop takes the same memory in each
  turn) or one of the latest blocks, if its users are over or come before the new op anyway: they
  lie before the last writer of one of its inputs, on that writer's stream or on one that this
  stream waited for. In a chain this is its own memory, which is still in the caches;
- the oldest block, if its users are known to be over;
- fresh memory, while the budget lasts;
- the oldest block. The driver is asked about its users now, not before: a question takes longer
  than all of this. If they are not over, the op waits, which is counted.

All of this is a guess, and no order depends on it: the engine's map has the history of the bytes.
It may lag behind a push of another thread; then an op waits that need not have.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from cudasync.engine.log.combiner import COMBINER

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cudasync.array.allocation import Allocation
    from cudasync.array.memory.free_lists import Size
    from cudasync.engine import Op
    from cudasync.engine.device.timeline import Point
    from cudasync.engine.hazards.history import History
    from cudasync.engine.hazards.interval_map import IntervalMap, Region

# So many of the latest blocks are looked at.
_LOOK = 4


def is_in_use(region: Region) -> bool:
    """True if an op on these bytes is not known to be over. Asks no driver."""
    ranges = COMBINER.ranges.get(COMBINER.epoch.histories_of)
    if ranges is None:
        return False
    history = ranges.exact.get(region)
    for each in _histories(ranges, region) if history is None else (history,):
        writer = each.writer
        if writer is not None and not writer.finished:
            return True
        for reader in each.readers:
            if not reader.finished:
                return True
    return False


def instead(home: Size, latest: Allocation, inputs: Sequence[Any]) -> Allocation | None:
    """The block to take instead of `latest`, which was taken and is in use; None for fresh memory.

    `inputs` are the operands of the new op: arrays, scalars or None.
    """
    idle = home.idle
    before = _last_writers(inputs)
    found = None
    aside = [latest]
    while found is None:
        users = _users(aside[-1].region)
        if not users or (before and _comes_before(users, before)):
            found = aside.pop()
        elif len(aside) == _LOOK:
            break
        else:
            try:
                aside.append(idle.pop())
            except IndexError:
                break
    # In their order: the latest block is taken first.
    aside.reverse()
    idle.extend(aside)
    if found is not None:
        return found
    try:
        oldest = idle.popleft()
    except IndexError:
        # Another thread took them all.
        return None
    users = _users(oldest.region)
    if not users:
        return oldest
    if home.budget.has_room_for(home):
        idle.appendleft(oldest)
        return None
    if not all(map(_is_over, users)):
        home.budget.note_wait()
    return oldest


def _histories(ranges: IntervalMap, region: Region) -> list[History]:
    # IndexError: another thread plans meanwhile.
    with suppress(IndexError):
        return ranges.peek(region)
    return []


def _users(region: Region) -> list[Op]:
    """The ops on these bytes that are not known to be over."""
    ranges = COMBINER.ranges.get(COMBINER.epoch.histories_of)
    if ranges is None:
        return []
    found = []
    for each in _histories(ranges, region):
        found += each.readers
        if each.writer is not None:
            found.append(each.writer)
    return [each for each in found if not _is_known_to_be_over(each)]


def _last_writers(inputs: Sequence[Any]) -> list[Point]:
    """The places of issue of the last writers of these arrays, as far as they are issued."""
    ranges = COMBINER.ranges.get(COMBINER.epoch.histories_of)
    if ranges is None:
        return []
    found = []
    for each in inputs:
        # Scalars have no region.
        region = getattr(each, "region", None)
        for history in () if region is None else _histories(ranges, region):
            point = None if history.writer is None else history.writer._point
            if point is not None:
                found.append(point)
    return found


def _comes_before(users: list[Op], points: list[Point]) -> bool:
    """True if each of these ops lies before one of these points, or is there."""
    for user in users:
        mine = user._point
        if mine is None:
            # Not issued yet. It may have been over a moment ago, too.
            if not user.finished:
                return False
            continue
        timeline, seq = mine[0], mine[1]
        for there, last, _, clock in points:
            if (last if there is timeline else clock.get(timeline, 0)) >= seq:
                break
        else:
            return False
    return True


def _is_known_to_be_over(op: Op) -> bool:
    if op.finished:
        return True
    point = op._point
    if point is None:
        # Not issued, or over a moment ago.
        return op.finished
    timeline, seq = point[0], point[1]
    return timeline.finished >= seq or timeline.reached >= seq


def _is_over(op: Op) -> bool:
    """True if the op is over by now; asks the driver at most once, about all work of the stream."""
    point = op._point
    return _is_known_to_be_over(op) or (point is not None and point[0].ask())
