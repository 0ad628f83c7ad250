"""Floor 2. The combiner: drains the log, entry by entry, for all threads and engines.

A push puts an op into the log, which gives the op its place in the total order. Later the thread
that is the combiner plans the op. There is one combiner at a time, and any thread may supersede it
(see `log.epoch`). So an entry may be entered twice, which `log.planning` makes harmless.
"""

from __future__ import annotations

from contextlib import suppress
from threading import get_ident
from typing import TYPE_CHECKING

from cudasync.atomic import DONE, SEAL, Log, Segment
from cudasync.driver.memory.allocations import ALLOCATIONS
from cudasync.engine.hazards.history import History
from cudasync.engine.hazards.interval_map import IntervalMap, Region
from cudasync.engine.log import back_off, planning
from cudasync.engine.log import epoch as epochs
from cudasync.engine.log import node as nodes
from cudasync.engine.log.entries import Adopt, Close, Forget
from cudasync.engine.log.histories import latest, ranges_of
from cudasync.engine.log.passing import index_of
from cudasync.engine.op import Op, WaiterToken
from cudasync.engine.op_classes import DataFence

if TYPE_CHECKING:
    from cudasync.engine.log.epoch import Epoch

# The number of entries after which a segment of the log is sealed.
SEGMENT = 4096
# Host ops that take longer than this are worth a second thread.
LONG_S = 60e-6


class Combiner:
    """The log, the epoch, and the histories of byte ranges. There is one per process."""

    def __init__(self) -> None:
        self.log = Log()
        # A hint: the latest epoch, or an earlier one.
        self.epoch = epochs.first(self.log.tail)
        self.ranges: dict[int, IntervalMap] = {0: IntervalMap()}

    @property
    def unplanned(self) -> int:
        """The rough number of unplanned entries of the log; 0 if and only if there are none.

        Neither a SEAL nor the items behind it are entries.
        """
        # The place of planning first, so that appends between the two looks are counted. `place`
        # and `Log.end` are inlined: each thread about to sleep, or that took an op, asks.
        epoch = self.epoch
        while epoch.successor:
            epoch = epoch.successor[0]
        place = epoch.segment.base + (epoch.done or 0)
        last = self.log.tail
        while last.is_sealed:
            last = last.next()
        return last.base + len(last.entries) - place

    @property
    def is_left_to_a_waiter(self) -> bool:
        """True if the only unplanned entry is an op that a waiting thread runs. No worker is needed
        then, and a plan of that op would be for nothing."""
        latest = epochs.latest(self.epoch)
        left = latest.segment.entries[latest.done or 0 :]
        if len(left) != 1 or not isinstance(left[0], Op):
            return False
        claims = left[0]._claims
        # The op may be over before its entry is.
        return bool(claims) and claims[0].__class__ is WaiterToken and not left[0].finished

    @property
    def place(self) -> int:
        """The rough number of planned entries of the log."""
        latest = epochs.latest(self.epoch)
        return latest.segment.base + (latest.done or 0)

    @property
    def is_slow(self) -> bool:
        """True if the planner may just need long for an entry: it is not to be superseded."""
        return back_off.is_slow(epochs.latest(self.epoch))

    @property
    def progress(self) -> object:
        """A value that is equal at two moments if no entry was planned in between."""
        latest = epochs.latest(self.epoch)
        return latest.number, latest.started, latest.done

    def tell_of_new(self, start: int, end: int) -> None:
        """Memory was allocated at [start, end): forget the histories of these addresses. They are
        about dead memory, perhaps lost in a reset of its device, which nobody reported."""
        region = Region(start, end)
        # The check keeps the log from growing in a program that allocates and pushes nothing.
        if self.known_of(region) != []:
            self.log.append(Forget(region))

    def known_of(self, region: Region) -> list[History] | None:
        """The histories of a range; None if ops on it may be unplanned."""
        if not self.unplanned:
            # So all ops on that memory are in the map.
            ranges = latest(self.ranges)
            # IndexError: another thread plans meanwhile.
            with suppress(IndexError):
                return [] if ranges is None else ranges.peek(region)
        return None

    def is_quiet(self, region: Region) -> bool:
        """True if no unfinished op writes `region`, and nothing failed there."""
        mine = self.epoch
        segment = mine.segment
        # As in `unplanned`: appends between the two looks are counted.
        if mine.done == len(segment.entries) and not mine.successor and not segment.is_sealed:
            ranges = self.ranges.get(mine.histories_of)
            if ranges is not None and ranges.exact.get(region, self) is None:
                return True
        known = self.known_of(region)
        return known is not None and all(state.is_quiet for state in known)

    def start_anew(self) -> list[Op]:
        """In a forked child: start a new log; return the unplanned ops of the old log."""
        left = self.left_in_log()
        self.log.__init__()  # type: ignore[misc]
        self.epoch = epochs.first(self.log.tail, epochs.latest(self.epoch).number + 1)
        return left

    def left_in_log(self) -> list[Op]:
        """The unplanned ops, and some planned ones."""
        segment: Segment | None = epochs.latest(self.epoch).segment
        left: list[Op] = []
        while segment is not None:
            left += [entry for entry in segment.entries if isinstance(entry, Op)]
            segment = segment.following[0] if segment.following else None
        return left

    def take(self) -> Epoch:
        """Become or remain the combiner. Waits for no thread, but see `epochs.succeed`."""
        mine = self.epoch
        # `Epoch.is_idle`, inlined: `done` of a visible epoch is set.
        if mine.owner == get_ident() and mine.started < mine.done and not mine.is_over:  # type: ignore[operator]
            return mine
        mine = epochs.succeed(mine)
        self.epoch = mine
        return mine

    def plan(self, op: Op | None = None, *, most: int | None = None) -> None:
        """Plan the log up to `op`, or up to its present end, or its next `most` entries.

        Waits for no thread, and runs no user's code.
        """
        end = 0 if op is not None else self.log.end
        while op is None or not nodes.is_planned(op):
            mine = self.take()
            if most is not None:
                # From its own place: a successor that is suspended may not know one.
                end = min(end, mine.segment.base + mine.done + most)  # type: ignore[operator]
                most = None
            if self._plan_on(mine, op, end) is not None:
                return

    def reach(self, op: Op) -> tuple[Epoch | None, int]:
        """Become the combiner, and plan the entries that must be entered before `op`, which is in
        the log: the epoch, and the index of `op` in its segment. (None, 0) if another thread has
        planned it. Waits for no thread, and runs no user's code."""
        while True:
            mine: Epoch | None = self.take()
            index = index_of(op, mine)  # type: ignore[arg-type]
            if index >= 0:
                return mine, index
            mine = self._plan_on(mine, op, 0, is_short=True)  # type: ignore[arg-type]
            if mine is not None:
                return mine, mine.done  # type: ignore[return-value]
            if nodes.is_planned(op):
                return None, 0

    def _plan_on(
        self, mine: Epoch, op: Op | None, end: int, *, is_short: bool = False
    ) -> Epoch | None:
        """Plan until the log ends, or up to number `end`, or until `op` is planned; with `is_short`
        until `op` is the next entry. None if another thread superseded this one before."""
        entries, base = mine.segment.entries, mine.segment.base
        index = mine.done
        assert index is not None
        while op is not None or base + index < end:
            # Begun before it is read: dropping the previous entry may run a finaliser that pushes,
            # and so plans on this thread.
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
            if isinstance(entry, Op) and not entry._engine._sealed_at:
                # `enter`, inlined for the usual entry.
                self.enter_op(entry, base + index, mine.histories_of)
            else:
                self.enter(entry, base + index, mine.histories_of)
            if not mine.is_over:
                # Else the successor enters it again, on histories that may lack it.
                entries[index] = DONE
            index += 1
            mine.done = index
            if index >= SEGMENT and not mine.segment.is_sealed:
                mine.segment.seal()
            if entry is op:
                return mine
        return mine

    def next_segment(self, mine: Epoch) -> Epoch | None:
        """Go on in the next segment; None if another thread has taken over."""
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
                # The first close counts.
                entry.engine._sealed_at = entry.engine._sealed_at or number

    enter_op, is_clear = planning.enter_op, planning.is_clear

    def ranges_of(self, epoch: int) -> IntervalMap:
        """The interval map of `epoch`, copied at the first need."""
        return ranges_of(self.ranges, epoch)


COMBINER = Combiner()
ALLOCATIONS.tells = COMBINER.tell_of_new
