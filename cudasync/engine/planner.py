"""Floor 2. Planning: from what ops read and write to the ops that must come before them.

Pushing puts an op into the log; that is its place in the one total order of all threads and
engines. Later some thread plans it (see `tenure`): a function of the log before it, so that it
does not matter who does, and does it twice:

- the plan is published first (the first one published holds), then the states are changed, then
  the ops before it are asked to tell when they are over;
- each store sets what planning the op once more would set again.
"""

from __future__ import annotations

from threading import get_ident
from typing import TYPE_CHECKING, TypeVar

from cudasync.atomic import DONE, SEAL, Log, Segment, offer
from cudasync.engine import record as records
from cudasync.engine import tenure as tenures
from cudasync.engine.op import DeviceOp, Fence, Marker, Op, PlainOp
from cudasync.engine.ranges import RangeMap, Region
from cudasync.engine.record import PLANNING, Plan
from cudasync.engine.state import State

if TYPE_CHECKING:
    from cudasync.engine.engine import Engine
    from cudasync.engine.tenure import Tenure
    from cudasync.engine.variable import Var

T = TypeVar("T")

# A segment of the log is left behind after this many entries.
SEGMENT = 4096
# Host ops that take longer than this are worth a second thread.
LONG_S = 60e-6


class Forget:
    """An entry of the log: the memory of a region is gone, and its history with it."""

    __slots__ = ("_pool", "region")

    def __init__(self, region: Region) -> None:
        self.region = region
        self._pool = None


class Adopt:
    """An entry of the log: `op`, which allocated `region`, is its writer.

    What the range's former owner did is no longer of interest: the driver hands out memory anew
    only in an order that makes it so.
    """

    __slots__ = ("_pool", "op", "region")

    def __init__(self, region: Region, op: Op) -> None:
        self.region = region
        self.op = op
        self._pool = None


class Close:
    """An entry of the log: ops of `engine` that come after it are refused."""

    __slots__ = ("_pool", "engine")

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._pool = None


class Planner:
    """The log, the tenure, and the states of byte ranges. There is one per process."""

    def __init__(self) -> None:
        self.log = Log()
        # A hint: the latest tenure, or one before it.
        self.tenure = tenures.first(self.log.tail)
        self.ranges: dict[int, RangeMap] = {0: RangeMap()}

    @property
    def unplanned(self) -> int:
        """How many entries of the log wait to be planned, roughly; 0 only if none does.

        And if none does, it is 0: what stands behind a SEAL is no entry, nor is the SEAL.
        """
        # First how far planning is: what is appended between the two looks is counted.
        place = self.place
        return self.log.end - place

    @property
    def place(self) -> int:
        """How many entries of the log are planned, roughly."""
        latest = tenures.latest(self.tenure)
        return latest.segment.base + (latest.done or 0)

    @property
    def progress(self) -> object:
        """Equal at two moments if no entry was planned in between."""
        latest = tenures.latest(self.tenure)
        return latest.epoch, latest.started, latest.done

    def start_anew(self) -> list[Op]:
        """In a forked child: leave the log behind; the ops in it that were not planned."""
        latest = tenures.latest(self.tenure)
        segment: Segment | None = latest.segment
        left: list[Op] = []
        while segment is not None:
            left += [entry for entry in segment.entries if isinstance(entry, Op)]
            segment = segment.following[0] if segment.following else None
        self.log.__init__()  # type: ignore[misc]
        self.tenure = tenures.first(self.log.tail, latest.epoch + 1)
        return left

    def take(self) -> Tenure:
        """Become the planner, or go on as such. Never blocks."""
        mine = self.tenure
        if mine.owner == get_ident() and mine.is_idle and not mine.successor:
            return mine
        mine = tenures.succeed(mine)
        self.tenure = mine
        return mine

    def plan(self, op: Op | None = None, *, most: int | None = None) -> None:
        """Plan the log up to `op`, or as long as it is now, or the next `most` entries of it.

        Never blocks, runs no user's code.
        """
        end = 0 if op is not None else self.log.end
        if most is not None:
            end = min(end, self.place + most)
        while op is None or not records.is_planned(op):
            if self._plan_on(self.take(), op, end):
                return

    def _plan_on(self, tenure: Tenure, op: Op | None, end: int) -> bool:
        """Plan until the log ends, or number `end`, or `op`: True. False when another thread has
        taken over."""
        entries, base = tenure.segment.entries, tenure.segment.base
        index = tenure.done
        assert index is not None
        while op is not None or base + index < end:
            try:
                entry = entries[index]
            except IndexError:
                return True
            tenure.started = index
            if tenure.successor:
                return False
            if entry is SEAL:
                following = self.next_segment(tenure)
                if following is None:
                    return False
                tenure, index = following, 0
                entries, base = tenure.segment.entries, tenure.segment.base
                continue
            self.enter(entry, base + index, tenure.states)
            if not tenure.successor:
                # Else the successor enters it once more, on states that may not have it yet.
                entries[index] = DONE
            index += 1
            tenure.done = index
            if index >= SEGMENT and not tenure.segment.is_sealed:
                tenure.segment.seal()
            if entry is op:
                return True
        return True

    def next_segment(self, tenure: Tenure) -> Tenure | None:
        """Go on in the next segment; None when another thread has taken over."""
        following = tenures.enter_next_segment(tenure)
        if following is not None:
            self.tenure = following
        return following

    def enter(self, entry: object, number: int, epoch: int) -> None:
        """Plan one entry of the log."""
        match entry:
            case Op():
                if 0 < entry._engine._sealed_at < number and not isinstance(entry, Marker):
                    entry._engine._refuse(entry, number)
                else:
                    self.enter_op(entry, number, epoch)
            case Forget():
                self.ranges_of(epoch).forget(entry.region)
            case Adopt():
                self.ranges_of(epoch).write(entry.region, State(epoch, entry.op))
            case Close():
                # The first close is the one that counts.
                entry.engine._sealed_at = entry.engine._sealed_at or number

    def enter_op(self, op: Op, number: int, epoch: int) -> None:
        """Plan `op`, and hand it on if nothing blocks it."""
        is_over = op.finished
        if is_over and op.failure is None and op._record is None:
            # It has run and left nothing to remember.
            op.number = number
            return
        ranges = self.ranges_of(epoch) if op._regions is not None else None
        reads = [each._states.get(epoch) or state_of(each, epoch) for each in op._reads]
        writes = [each._states.get(epoch) or state_of(each, epoch) for each in op._writes]
        overwritten: tuple[Region, ...] = ()
        if ranges is not None:
            assert op._regions is not None
            only_read, updated, written = op._regions
            reads += ranges.read_all(only_read + updated)
            overwritten = updated + written
        record, plan = records.of(op), None
        if not is_over:
            plan = record.plan
            if plan is None:
                seen = [state for region in overwritten for state in ranges.peek(region)]  # type: ignore[union-attr]
                plan = offer(record.plans, _plan(op, reads, writes + seen))
        op.number = number
        for state in reads:
            state.add_reader(op)
        for state in writes:
            state.overwrite(op)
        if ranges is not None:
            for region in overwritten:
                ranges.overwrite(region, op)
            ranges.sweep()
        if plan is None:
            return
        op._engine._registered[op] = None
        arrive = plan.arrive
        for before in plan.before:
            if before.__class__ is PlainOp:
                # `_listen`, written out.
                (before._record or records.of(before)).listeners.append(plan)
                if before.finished:
                    arrive(before)
            elif not _listen(before, op, plan):
                arrive(before)
        plan.told(PLANNING)
        record.is_planned = True
        if op.finished:
            # It ended while it was entered.
            op._engine._registered.pop(op, None)

    def is_clear(self, op: Op, epoch: int) -> bool:
        """True if `op` may run at once, and need not be remembered while the planner runs it."""
        for variable in op._reads + op._writes:
            if variable._states and not state_of(variable, epoch).rest():
                return False
        if op._regions is not None:
            ranges = self.ranges_of(epoch)
            for regions in op._regions:
                for region in regions:
                    for state in ranges.peek(region):
                        # Only its own states are a planner's to change.
                        if not (state.rest() if state.epoch == epoch else state.is_quiet):
                            return False
        return True

    def ranges_of(self, epoch: int) -> RangeMap:
        """The ranges as the planner of `epoch` knows them: copied at the first need."""
        ranges = self.ranges.get(epoch)
        if ranges is None:
            known = _latest(self.ranges)
            assert known is not None
            ranges = self.ranges.setdefault(epoch, known.copy(epoch))
            _drop_older(self.ranges, epoch)
        return ranges


def state_of(variable: Var, epoch: int) -> State:
    """The state of a variable as the planner of `epoch` knows it: copied at the first need."""
    states = variable._states
    state = states.get(epoch)
    if state is None:
        known = _latest(states)
        fresh = State(epoch) if known is None else known.copy(epoch)
        state = states.setdefault(epoch, fresh)
        if len(states) > 1:
            _drop_older(states, epoch)
    return state


def _latest(by_epoch: dict[int, T]) -> T | None:
    """What belongs to the largest epoch, None if there is nothing."""
    while by_epoch:
        # Two C calls: a planner that was overtaken may drop the first, for a larger one.
        found = by_epoch.get(max(by_epoch))
        if found is not None:
            return found
    return None


def _drop_older(by_epoch: dict[int, State] | dict[int, RangeMap], epoch: int) -> None:
    # A planner of an older epoch may add its own once more: the largest is the one that counts.
    for each in list(by_epoch):
        if each < epoch:
            by_epoch.pop(each, None)


def _plan(op: Op, reads: list[State], writes: list[State]) -> Plan:
    """What `op` has to come after, from the states before it."""
    before: dict[Op, None] = {}
    sources: dict[Op, None] = {}
    for state in reads:
        writer = state.writer
        if writer is not None:
            if not writer.finished:
                before[writer] = sources[writer] = None
            elif writer.is_poisoned:
                sources[writer] = None
    for state in writes:
        is_behind = False
        for reader in state.readers:
            if not reader.finished:
                before[reader] = None
                # It ends after the writer. (One on a device that is lost ends at once.)
                is_behind = is_behind or reader.__class__ is PlainOp
        writer = state.writer
        if not is_behind and writer is not None and not writer.finished:
            before[writer] = None
    if isinstance(op, Fence):
        before.update([(each, None) for each in list(op._engine._registered) if not each.finished])
    before.pop(op, None)
    return Plan(op, before, tuple(sources))


def _listen(before: Op, op: Op, plan: Plan) -> bool:
    """Have `plan` told about `before`; False if it need not be waited for."""
    record = before._record or records.of(before)
    # First the listener, then the look: who ends or issues `before` does it the other way round.
    if isinstance(op, DeviceOp) and isinstance(before, DeviceOp):
        # Once it is issued, the driver can do the waiting.
        record.issue_listeners.append(plan)
        return not (before.finished or before._point is not None)
    record.listeners.append(plan)
    if before.finished:
        return False
    before._pool.watch(before)
    return True


PLANNER = Planner()
