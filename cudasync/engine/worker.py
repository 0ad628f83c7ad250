"""Floor 2. One worker thread: plans, runs ops, watches, sleeps. The protocol is in `workers`.

The loop in `_drain` is what a host op costs. It does by hand what `records.finish` and
`planner.enter` do for the others, and names them where it does.
"""

from __future__ import annotations

import time
from threading import get_ident
from typing import TYPE_CHECKING, Any

from cudasync.atomic import DONE, SEAL
from cudasync.engine import current, issue, refusal
from cudasync.engine import record as records
from cudasync.engine import tenure as tenures
from cudasync.engine.ledger import poison
from cudasync.engine.op import Op, PlainOp
from cudasync.engine.planner import LONG_S, PLANNER, SEGMENT, Close

if TYPE_CHECKING:
    from cudasync.engine.tenure import Tenure
    from cudasync.engine.workers import WorkerPool

# Planning ahead stops for a moment when this many ops in a row had to wait: perhaps the one
# that they wait for only needs the processor.
AHEAD = 16
# So many short ops in a row, and the workers of a pool do no longer share what is ready.
SPREAD = 32
FIRST_NAP_S = 200e-6
LONGEST_NAP_S = 10e-3


class Worker:
    """What one worker thread keeps to itself; others only read it."""

    __slots__ = ("_count", "name", "op", "pool")

    def __init__(self, pool: WorkerPool, number: int) -> None:
        self.pool = pool
        self.name = f"worker {pool.name} {number - 1}"
        # The op that runs, or ran last.
        self.op: Op | None = None
        # Ops that ran without failing; while it drains the log, those before that, whose tenure,
        # and the index in it from which on each op counts.
        self._count: tuple[int, Tenure | None, int] = 0, None, 0

    @property
    def ran(self) -> int:
        """Ops that ran to their end without failing. Exact whenever none is under way."""
        ran, tenure, first = self._count
        if tenure is None:
            return ran
        done, op = tenure.done or 0, self.op
        # An op is over before the tenure says so, and who waited for it looks here then.
        is_late = op is not None and op.finished and op.number == tenure.segment.base + done
        return ran + done - first + is_late

    @property
    def is_in_op(self) -> bool:
        """True while it runs the function of `op`, as far as can be seen."""
        op = self.op
        return op is not None and not op.finished

    def main(self) -> None:
        """Work until the pool ends."""
        pool = self.pool
        with current.working(self):
            while True:
                pool.active[self] = None
                # Those that its ops push to; strong, but not while it sleeps.
                current.enter_engine(pool.owner())
                self._attend()
                self._work()
                pool.active.pop(self, None)
                # Hold nothing while asleep: an op's arrays must be able to go.
                self.op = None
                current.enter_engine(None)
                pool.idle[self] = None
                is_over = self._rest()
                pool.idle.pop(self, None)
                if is_over:
                    return

    def _work(self) -> None:
        """Plan and run until there is nothing to do, or others are at it."""
        pool = self.pool
        while True:
            op = pool.take()
            if op is not None:
                if (pool.idle or pool.vacant) and (pool.heap or PLANNER.unplanned):
                    # More than this worker can see to while it runs the op.
                    pool.ring()
                self._run(op)
                if issue.READY:
                    issue.settle()
            elif not PLANNER.unplanned:
                return
            elif not pool.is_plain:
                PLANNER.plan()
                issue.settle()
            else:
                self._attend()
                is_ahead = self._drain()
                self._count = self.ran, None, 0
                if is_ahead:
                    return
            del op
            if pool.surplus:
                return

    def _rest(self) -> bool:
        """Sleep until there is something to do; True if this worker is to end.

        While others work, one of the idle ones watches: it looks whether planning goes on.
        """
        pool = self.pool
        nap = FIRST_NAP_S
        seen, since = PLANNER.place, time.monotonic()
        while True:
            watches = bool(pool.active) and not (pool.watching and self not in pool.watching)
            if watches:
                pool.watching[self] = pool.eyes[self] = None
            else:
                pool.watching.pop(self, None)
                pool.eyes.pop(self, None)
            # Only now: what was pushed before is seen here, what comes after finds no eyes.
            if pool.heap or (PLANNER.unplanned and not pool.active):
                break
            if pool.is_over():
                return True
            rang = pool.bell.sleep(nap if watches else None)
            place, now = PLANNER.place, time.monotonic()
            if not rang and watches and now - since >= LONG_S * (place - seen):
                if place == seen:
                    owner = pool.owner()
                    if owner is not None:
                        records.tell_for_others(owner)
                        del owner
                # Who wakes late waited for the GIL: what has it gains nothing by a second thread.
                is_free = now - since < 2 * nap + LONG_S
                if PLANNER.unplanned and (is_free or place == seen):
                    if is_free:
                        pool.spread = SPREAD
                    break
            elif rang and pool.spread and PLANNER.unplanned:
                break
            seen, since = place, now
            nap = FIRST_NAP_S if rang else min(2 * nap, LONGEST_NAP_S)
        watched = self in pool.watching
        pool.watching.pop(self, None)
        if watched and not pool.watching and len(pool.idle) > 1:
            # Whoever relied on this one to watch does not know that it is off to work.
            pool.ring()
        return False

    def _drain(self) -> bool:
        """Go through the log as its planner for a while, running what can run at once."""
        pool = self.pool
        holder = tenures.latest(PLANNER.tenure)
        if not holder.is_idle and holder.owner != get_ident() and not _is_running(holder):
            # Another thread is planning right now; if it does not come on, it is suspended.
            seen = PLANNER.progress
            if pool.bell.sleep(FIRST_NAP_S) or PLANNER.progress != seen:
                return False
        tenure = PLANNER.take()
        segment, successor, heap = tenure.segment, tenure.successor, pool.heap
        entries, base, epoch, start = segment.entries, segment.base, tenure.states, tenure.done
        assert start is not None
        # Whose plain ops may run at once, and from which places the others. Nothing has the worker
        # itself for its engine.
        own: object = self
        places: tuple[object, ...] = ()
        owner = pool.owner()
        if owner is not None and not owner._sealed_at:
            places = pool, pool.regional
            if owner._compute is pool and not pool.spread:
                own = owner
        if len(entries) > start + 1 and not pool.watching:
            # What comes behind should not have to wait for the first op.
            pool.ring()
        blocked = 0
        self._count = self._count[0], tenure, start
        index, end = start, start + tenures.STRETCH
        try:
            while index < end:
                if heap:
                    return False
                try:
                    op: Any = entries[index]
                except IndexError:
                    return False
                tenure.started = index
                if successor:
                    return False
                if op.__class__ is PlainOp:
                    is_clear = False
                    if op._engine is own:
                        op._number = base + index
                        is_clear = True
                        # To loop over a single thing costs an iterator, so it is unpacked instead.
                        if things := op._reads:
                            if len(things) == 1:
                                (variable,) = things
                                if variable._states:
                                    is_clear = False
                            else:
                                for variable in things:
                                    if variable._states:
                                        is_clear = False
                        if things := op._writes:
                            if len(things) == 1:
                                (variable,) = things
                                if variable._states:
                                    is_clear = False
                            else:
                                for variable in things:
                                    if variable._states:
                                        is_clear = False
                        if not is_clear:
                            is_clear = PLANNER.is_clear(op, epoch)
                elif op._pool in places:
                    op.number = base + index
                    is_clear = PLANNER.is_clear(op, epoch)
                else:
                    is_clear = False
                if is_clear:
                    try:
                        # The claim: one thread succeeds.
                        fn = op._fn
                        del op._fn
                    except AttributeError:
                        pass
                    else:
                        self.op = op
                        try:
                            op._result = fn()
                        except BaseException as error:
                            self._failed(op, error, epoch)
                            self._skip()
                        # `records.finish`, written out.
                        op.finished = True
                        if op._record is not None:
                            records.finish(op)
                            issue.settle()
                        if not successor:
                            entries[index] = DONE
                        tenure.done = index = index + 1
                        continue
                if op is SEAL:
                    PLANNER.next_segment(tenure)
                    return False
                PLANNER.enter(op, base + index, epoch)
                self._skip()
                issue.settle()
                if not successor:
                    entries[index] = DONE
                tenure.done = index = index + 1
                if op.__class__ is Close:
                    return False
                blocked += 1
                if blocked > AHEAD:
                    return True
            if index >= SEGMENT and not segment.is_sealed:
                segment.seal()
            return False
        finally:
            # An exception of an op refers to this frame, which must not keep what comes after it:
            # each tenure refers to the next one, each segment too.
            del holder, tenure, successor, segment, entries

    def _run(self, op: Op) -> None:
        """Run an op that was planned, unless another thread has claimed it."""
        try:
            fn = op._fn
            del op._fn
        except AttributeError:
            return
        pool = self.pool
        ledger = pool.ledger
        sources = records.plan_of(op).sources
        failure = poison(sources) if sources else None
        if failure is None and op._engine._is_dropped:
            failure = refusal.dropped(op)
        if failure is None:
            self.op = op
            start = time.perf_counter()
            try:
                op._result = fn()
            except BaseException as error:
                ledger.fail(op, error)
                ledger.counters.failed_ops.next()
            else:
                self._count = self._count[0] + 1, None, 0
                if ledger.recorder is not None:
                    ledger.recorder.ran(op, self.name, start)
                elif pool.spread:
                    is_long = time.perf_counter() - start > LONG_S
                    pool.spread = SPREAD if is_long else pool.spread - 1
        else:
            op.failure = failure
            ledger.note(failure)
            ledger.counters.failed_ops.next()
            if ledger.recorder is not None:
                ledger.recorder.dropped(op)
        del fn
        records.finish(op)
        if ledger.held:
            ledger.ended()

    def _skip(self) -> None:
        """An entry of the log that it drains does not count."""
        ran, tenure, first = self._count
        self._count = ran, tenure, first + 1

    def _failed(self, op: Op, error: BaseException, epoch: int) -> None:
        """An op failed that was run without a record: from now on it poisons what it wrote."""
        ledger = self.pool.ledger
        ledger.fail(op, error)
        ledger.counters.failed_ops.next()
        PLANNER.enter_op(op, op.number, epoch)

    def _attend(self) -> None:
        """Settle who sees what is pushed while an op keeps this thread: see `workers`."""
        pool = self.pool
        if pool.watching or not (pool.idle or pool.vacant):
            pool.eyes[self] = None
        else:
            pool.eyes.pop(self, None)


def _is_running(holder: tenures.Tenure) -> bool:
    """True if the holder of a tenure is in an op's function, as far as can be seen."""
    entries = holder.segment.entries
    try:
        op = entries[holder.started]
    except IndexError:
        return False
    return isinstance(op, Op) and not hasattr(op, "_fn")
