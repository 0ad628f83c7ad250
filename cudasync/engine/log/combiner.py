"""Floor 2. The combiner: goes through the log, and finds what each op must come after.

Pushing puts an op into the log; that is its place in the one total order of all threads and
engines. Later some thread plans it (see `log.epoch`): a function of the log before it, so that it
does not matter who does, and does it twice:

- the plan is published first (the first one published holds), then the states are changed, then
  the ops before it are asked to tell when they are over;
- each store sets what planning the op once more would set again.
"""

from __future__ import annotations

from contextlib import suppress
from operator import attrgetter
from threading import get_ident
from typing import TYPE_CHECKING

from cudasync.atomic import DONE, SEAL, Log, Segment, offer
from cudasync.driver.allocations import ALLOCATIONS
from cudasync.engine.hazards.damage import Origins
from cudasync.engine.hazards.history import History
from cudasync.engine.hazards.interval_map import IntervalMap, Region
from cudasync.engine.hazards.predecessors import predecessors
from cudasync.engine.hazards.unheard import unheard_of
from cudasync.engine.log import epoch as epochs
from cudasync.engine.log import node as nodes
from cudasync.engine.log.entries import Adopt, Close, Forget
from cudasync.engine.log.histories import history_of, latest, ranges_of
from cudasync.engine.log.node import OPEN, PLANNING, JoinGate, TracedGate
from cudasync.engine.op import DataFence, DeviceOp, Fence, FullOp, Op, PlainOp

if TYPE_CHECKING:
    from cudasync.engine.log.epoch import Epoch

_SALVAGE = attrgetter("_salvage")
# A segment of the log is left behind after this many entries.
SEGMENT = 4096
# Host ops that take longer than this are worth a second thread.
LONG_S = 60e-6


class Combiner:
    """The log, the epoch, and the states of byte ranges. There is one per process."""

    def __init__(self) -> None:
        self.log = Log()
        # A hint: the latest epoch, or one before it.
        self.epoch = epochs.first(self.log.tail)
        self.ranges: dict[int, IntervalMap] = {0: IntervalMap()}

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
        latest = epochs.latest(self.epoch)
        return latest.segment.base + (latest.done or 0)

    @property
    def progress(self) -> object:
        """Equal at two moments if no entry was planned in between."""
        latest = epochs.latest(self.epoch)
        return latest.number, latest.started, latest.done

    def tell_of_new(self, start: int, end: int) -> None:
        """Memory was allocated at [start, end): what is known of these addresses is of memory that
        is gone, perhaps with a reset of its device, and then nobody told of its end."""
        region = Region(start, end)
        # A log that nobody plans does not grow by what a program allocates that pushes nothing.
        if self.known_of(region) != []:
            self.log.append(Forget(region))

    def known_of(self, region: Region) -> list[History] | None:
        """The states of a range; None where an op of it may be planned yet, or is now."""
        if not self.unplanned:
            # So ops of that memory are in the map, if they are anywhere.
            ranges = latest(self.ranges)
            # IndexError: another thread plans meanwhile.
            with suppress(IndexError):
                return [] if ranges is None else ranges.peek(region)
        return None

    def start_anew(self) -> list[Op]:
        """In a forked child: leave the log behind; the ops in it that were not planned."""
        left = self.left_in_log()
        self.log.__init__()  # type: ignore[misc]
        self.epoch = epochs.first(self.log.tail, epochs.latest(self.epoch).number + 1)
        return left

    def left_in_log(self) -> list[Op]:
        """The ops that are not planned yet, and some that are."""
        segment: Segment | None = epochs.latest(self.epoch).segment
        left: list[Op] = []
        while segment is not None:
            left += [entry for entry in segment.entries if isinstance(entry, Op)]
            segment = segment.following[0] if segment.following else None
        return left

    def take(self) -> Epoch:
        """Become the combiner, or go on as such. Waits for nobody, as `epochs.succeed` says."""
        mine = self.epoch
        # `Epoch.is_idle`, written out: who can be seen there knows how far it is.
        if mine.owner == get_ident() and mine.started < mine.done and not mine.is_over:  # type: ignore[operator]
            return mine
        mine = epochs.succeed(mine)
        self.epoch = mine
        return mine

    def plan(self, op: Op | None = None, *, most: int | None = None) -> None:
        """Plan the log up to `op`, or as long as it is now, or the next `most` entries of it.

        Waits for nobody, runs no user's code.
        """
        end = 0 if op is not None else self.log.end
        if most is not None:
            end = min(end, self.place + most)
        while op is None or not nodes.is_planned(op):
            if self._plan_on(self.take(), op, end) is not None:
                return

    def reach(self, op: Op) -> Epoch | None:
        """Become the combiner with `op`, which is in the log, as the next entry; None if another
        thread has planned it. Waits for nobody, runs no user's code."""
        while True:
            mine = self._plan_on(self.take(), op, 0, is_short=True)
            if mine is not None:
                return mine
            if nodes.is_planned(op):
                return None

    def _plan_on(
        self, mine: Epoch, op: Op | None, end: int, *, is_short: bool = False
    ) -> Epoch | None:
        """Go on until the log ends, or number `end`, or `op` is planned; or, if `is_short`, until
        `op` is the next. None if that is not so, since another thread is at it."""
        entries, base = mine.segment.entries, mine.segment.base
        index = mine.done
        assert index is not None
        while op is not None or base + index < end:
            # Begun before it is read: to let go of the entry before may run a finaliser that
            # pushes, and so plans on this very thread.
            mine.started = index
            try:
                entry = entries[index]
            except IndexError:
                mine.started = index - 1
                return None if is_short else mine
            if mine.is_over:
                return None
            if is_short and entry is op:
                mine.started = index - 1
                return mine
            if entry is SEAL:
                following = self.next_segment(mine)
                if following is None:
                    return None
                mine, index = following, 0
                entries, base = mine.segment.entries, mine.segment.base
                continue
            self.enter(entry, base + index, mine.states)
            if not mine.is_over:
                # Else the successor enters it once more, on states that may not have it yet.
                entries[index] = DONE
            index += 1
            mine.done = index
            if index >= SEGMENT and not mine.segment.is_sealed:
                mine.segment.seal()
            if entry is op:
                return mine
        return mine

    def next_segment(self, mine: Epoch) -> Epoch | None:
        """Go on in the next segment; None when another thread has taken over."""
        following = epochs.enter_next_segment(mine)
        if following is not None:
            self.epoch = following
        return following

    def enter(self, entry: object, number: int, epoch: int) -> None:
        """Plan one entry of the log."""
        match entry:
            case Op():
                if (
                    (sealed_at := entry._engine._sealed_at)
                    and sealed_at < number
                    and not isinstance(entry, DataFence)
                ):
                    entry._engine._refuse(entry, number)
                else:
                    self.enter_op(entry, number, epoch)
            case Forget():
                self.ranges_of(epoch).forget(entry.region)
            case Adopt():
                self.ranges_of(epoch).write(entry.region, History(epoch, entry.op))
            case Close():
                # The first close is the one that counts.
                entry.engine._sealed_at = entry.engine._sealed_at or number

    def enter_op(self, op: Op, number: int, epoch: int) -> None:
        """Plan `op`, and hand it on if nothing blocks it."""
        is_over = op.finished
        if is_over and op.failure is None and op._node is None and op._before is None:
            # It has run and left nothing to remember. (With `_before`, its push has issued it: it
            # may have overwritten what a failure had poisoned, on states that were copied since.)
            op.number = number
            return
        ranges = self.ranges_of(epoch) if op._regions is not None else None
        reads: list[History] = []
        writes: list[History] = []
        # A comprehension over nothing costs a call all the same.
        if op._reads:
            reads = [each._states.get(epoch) or history_of(each, epoch) for each in op._reads]
        if op._writes:
            writes = [each._states.get(epoch) or history_of(each, epoch) for each in op._writes]
        overwritten: tuple[Region, ...] = ()
        # What orders the op and does not poison it.
        unheard: list[History] = []
        if ranges is not None:
            assert op._regions is not None
            only_read, updated, written = op._regions
            named = only_read + updated
            reads += ranges.read_all(named)
            overwritten = updated + written
            unheard = unheard_of(ranges, named, reads)
        node, gate = op._node or nodes.of(op), None
        if not is_over:
            gates = node.gates
            if gates:
                gate = gates[0]
            else:
                seen = writes
                if overwritten:
                    assert ranges is not None
                    seen = writes + [each for region in overwritten for each in ranges.peek(region)]
                sources = reads
                if unheard:
                    seen = seen + unheard
                    # A set: where an op accesses all memory, these are thousands.
                    deaf = set(unheard)
                    sources = [each for each in reads if each not in deaf]
                made = _plan(op, sources, seen, reads, ranges)
                gate = offer(gates, made)
                if gate is not made and made is not OPEN:
                    # Nobody looks at it, nor lets go for it when the op is over.
                    made.let_go()
        if op.__class__ is PlainOp:
            op._number = number
        else:
            op.number = number
        for state in reads:
            state.add_reader(op)
        for state in writes:
            state.overwrite(op)
        if ranges is not None:
            for region in overwritten:
                ranges.overwrite(region, op)
            ranges.sweep()
        if gate is None:
            return
        op._engine._registered[op] = None
        if gate is OPEN:
            if not op.finished:
                op._pool.put(op)
        else:
            for before in gate.before:
                kind = before.__class__
                if kind is PlainOp or kind is FullOp:
                    # `_listen`, written out for what says itself when it is over.
                    (before._node or nodes.of(before)).listeners.append(gate)
                    if before.finished:
                        gate.arrive(before)
                elif not _listen(before, op, gate):
                    gate.arrive(before)
            gate.notify(PLANNING)
        node.is_planned = True
        if op.finished:
            # It ended while it was entered: perhaps nobody knew of the plan.
            op._engine._registered.pop(op, None)
            if gate is not OPEN:
                gate.let_go()

    def is_clear(self, op: Op, epoch: int) -> bool:
        """True if `op` may run at once, and need not be remembered while the combiner runs it."""
        resolved = op._resolved
        if resolved is None or resolved.has_states():
            for variable in op._reads + op._writes:
                if variable._states:
                    if not history_of(variable, epoch).rest():
                        return False
                    if resolved is not None:
                        # At rest is as good as none, and is seen sooner the next time.
                        variable._states.pop(epoch, None)
        if op._regions is not None:
            ranges = self.ranges_of(epoch)
            for regions in op._regions:
                for region in regions:
                    if not ranges.touches(region):
                        continue
                    for state in ranges.peek(region):
                        # Only its own states are a combiner's to change.
                        if not (state.rest() if state.epoch == epoch else state.is_quiet):
                            return False
        return True

    def ranges_of(self, epoch: int) -> IntervalMap:
        """The ranges as the combiner of `epoch` knows them: copied at the first need."""
        return ranges_of(self.ranges, epoch)


def _plan(
    op: Op,
    reads: list[History],
    writes: list[History],
    known: list[History],
    ranges: IntervalMap | None,
) -> JoinGate:
    """What `op` has to come after, from the histories before it; `known` has those of the variables
    that it reads, first."""
    before, sources = predecessors(reads, writes) if reads or writes else ({}, {})
    if op.__class__ is Fence:
        for each in reversed(list(op._engine._registered)):
            if not each.finished:
                before[each] = None
                if isinstance(each, Fence):
                    # It comes after all that were planned before it.
                    break
    before.pop(op, None)
    if sources and (op._salvage is not None or any(map(_SALVAGE, sources))):
        origins = Origins.of(op, known[: len(op._reads)], ranges)
        return TracedGate(op, before, tuple(sources), origins)
    return JoinGate(op, before, tuple(sources)) if before or sources else OPEN


def _listen(before: Op, op: Op, gate: JoinGate) -> bool:
    """Have `gate` told about `before`; False if it need not be waited for."""
    node = before._node or nodes.of(before)
    # First the listener, then the look: who ends or issues `before` does it the other way round.
    if isinstance(op, DeviceOp) and isinstance(before, DeviceOp) and not op._is_blocking:
        # Once it is issued, the driver can do the waiting.
        node.issue_listeners.append(gate)
        return not (before.finished or before._point is not None)
    node.listeners.append(gate)
    if before.finished:
        return False
    before._pool.watch(before)
    return True


COMBINER = Combiner()
ALLOCATIONS.tells = COMBINER.tell_of_new
