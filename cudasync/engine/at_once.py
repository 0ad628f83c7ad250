"""Floor 2. A device op that nothing holds back: put into the log, planned and issued in one go.

That is how most device ops go, since whatever they come after is issued long before it has run;
and no other thread has to do with the op until it is issued. So it needs no record, no gate and
nobody to hand it on. What is not so simple goes the way that is always right: `Planner.enter`,
and whoever finds the op ready.

The rules of the planner hold here too (see `planner` and `tenure`): another thread may take over
at any moment, and then enters the op once more, on copies of the states. Then there is a record
as well, and a plan; but who issues the op is settled by the claim, as always.
"""

from __future__ import annotations

from threading import get_ident
from typing import TYPE_CHECKING, Any

from cudasync.atomic import DONE
from cudasync.engine import issue
from cudasync.engine import record as records
from cudasync.engine.op import DeviceOp, Op
from cudasync.engine.planner import PLANNER, SEGMENT, state_of

if TYPE_CHECKING:
    from typing import TypeAlias

    from cudasync.engine.state import State

    Found: TypeAlias = tuple[tuple[Op, ...], tuple[Op, ...], list[State], list[State]]

_LOG = PLANNER.log


def submit(op: DeviceOp) -> None:
    """Give `op` its place in the log; issue it if its predecessors are issued, else leave it to
    those who end or issue the last of them. Never blocks."""
    try:
        _LOG.append(op)
        go_on(op)
    except BaseException:
        leave(op)
        raise


def go_on(op: DeviceOp) -> DeviceOp:
    """Do for `op`, which is in the log, all that its push has to do."""
    if not _is_carried_out(op):
        PLANNER.plan(op)
    if op._is_owned and op._point is None and not op.finished:
        # Nothing blocks it, and nobody else is to be in the middle of it on return.
        op._pool.issue(op)
    if issue.READY:
        issue.settle()
    return op


def leave(op: DeviceOp) -> None:
    """After Ctrl-C: whoever comes next is to go on with `op`, now or once it is planned."""
    op._is_owned = False
    if records.is_planned(op) and not op.finished:
        issue.READY[op] = None


def _is_carried_out(op: DeviceOp) -> bool:
    """Plan and issue `op`, if it is the next to be planned; True if it is planned."""
    # `Planner.take` and `Planner._plan_on`, written out.
    mine = PLANNER.tenure
    if mine.owner != get_ident() or mine.successor or not mine.is_idle:
        mine = PLANNER.take()
    segment = mine.segment
    entries: list[Any] = segment.entries
    index = mine.done
    assert index is not None
    if index >= len(entries) or entries[index] is not op:
        return False
    mine.started = index
    # The second: a signal handler or finaliser pushed meanwhile, on this very thread.
    if mine.successor or mine.done != index:
        return False
    number, fn = segment.base + index, None
    found = _look(op, mine.states)
    try:
        if found is not None:
            op._before, sources, reads, writes = found
            try:
                claimed = op._fn
                del op._fn
                fn = claimed
            except AttributeError:
                # Somebody else has entered it and claimed it: it comes after what its plan says.
                op._before = None
        if fn is None:
            PLANNER.enter(op, number, mine.states)
        else:
            op.number = number
            for state in reads:
                state.add_reader(op)
            for state in writes:
                state.overwrite(op)
            op._engine._registered[op] = None
            PLANNER.ranges_of(mine.states).sweep()
        if not mine.successor:
            entries[index] = DONE
        mine.done = index = index + 1
        if index >= SEGMENT and not segment.is_sealed:
            segment.seal()
        # As in `launching`: an exception of the op refers to this frame.
        del mine, segment, entries
        if fn is not None:
            op._pool.carry_out(op, fn, op._before, sources)
    except BaseException as error:
        if fn is not None:
            op._pool.give_up(op, error)
        raise
    return True


def _look(op: DeviceOp, epoch: int) -> Found | None:
    """What `op` comes after, if all of it is issued or over; else None. Nothing changes yet, but
    that ranges are split where those of `op` end.

    Returns what it comes after, which of that wrote what it reads, and the states that it reads
    and writes.
    """
    if op._engine._sealed_at:
        return None
    ranges = PLANNER.ranges.get(epoch)
    if ranges is None:
        ranges = PLANNER.ranges_of(epoch)
    streams = op._pool.devices.get(op._device.context.token)
    before: dict[Op, None] = {}
    reads: list[State] = []
    writes: list[State] = []
    regions = op._regions
    if regions is not None:
        reads = ranges.read_all(regions[0] + regions[1])
        for region in regions[1] + regions[2]:
            state = ranges.find(region)
            if state is not None:
                writes.append(state)
            elif region[0] < region[1]:
                return None
    for variable in op._reads:
        reads.append(state_of(variable, epoch))
    for variable in op._writes:
        writes.append(state_of(variable, epoch))
    for state in reads:
        writer = state.writer
        if writer is not None and not _is_followed(writer, streams, before):
            return None
    sources = tuple(before)
    for state in writes:
        writer = state.writer
        if writer is not None and not _is_followed(writer, streams, before):
            return None
        for reader in state.readers:
            if not _is_followed(reader, streams, before):
                return None
    if op in before:
        # Whoever was overtaken in the middle of this entry has entered it, and it is issued.
        return None
    return tuple(before), sources, reads, writes


def _is_followed(other: Op, streams: Any, before: dict[Op, None]) -> bool:
    """Have `before` tell of `other`, if it is issued to `streams`, or need not be told of."""
    if other.finished:
        return other.failure is None
    if other.__class__ is not DeviceOp:
        return False
    point = other._point
    if point is None or other.failure is not None or point[0].streams is not streams:
        return False
    before[other] = None
    return True
