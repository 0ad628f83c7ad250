"""Floor 2. One worker thread: plans, runs ops, watches, sleeps. The protocol is in `workers`.

The loop in `_drain` is what a host op costs. It does by hand what `records.finish` and
`planner.enter` do for the others, and names them where it does.
"""

from __future__ import annotations

import time
from threading import get_ident
from typing import TYPE_CHECKING, Any

from cudasync.atomic import DONE, SEAL
from cudasync.engine import current, issue
from cudasync.engine import record as records
from cudasync.engine import tenure as tenures
from cudasync.engine.ledger import poison
from cudasync.engine.op import Op
from cudasync.engine.planner import PLANNER, SEGMENT, Close

if TYPE_CHECKING:
    from cudasync.engine.workers import WorkerPool

# Planning ahead stops for a moment when this many ops in a row had to wait: perhaps the one
# that they wait for only needs the processor.
AHEAD = 64
FIRST_NAP_S = 200e-6
LONGEST_NAP_S = 10e-3


class Worker:
    """What one worker thread keeps to itself; others only read it."""

    __slots__ = ("name", "op", "pool", "ran")

    def __init__(self, pool: WorkerPool, number: int) -> None:
        self.pool = pool
        self.name = f"worker {pool.name} {number - 1}"
        # The op that runs, or ran last.
        self.op: Op | None = None
        # Ops that ran to their end without failing.
        self.ran = 0

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
                if pool.heap or PLANNER.unplanned:
                    # More than this worker can see to while it runs the op.
                    pool.ring()
                self._run(op)
                issue.settle()
            elif not PLANNER.unplanned:
                return
            elif not pool.is_plain:
                PLANNER.plan()
                issue.settle()
            else:
                self._attend()
                self._drain()
            del op
            if pool.surplus:
                return

    def _rest(self) -> bool:
        """Sleep until there is something to do; True if this worker is to end.

        While others work, one of the idle ones watches: it looks whether planning goes on.
        """
        pool = self.pool
        nap = FIRST_NAP_S
        seen = PLANNER.progress
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
            progress = PLANNER.progress
            if not rang and watches and progress == seen:
                owner = pool.owner()
                if owner is not None:
                    records.tell_for_others(owner)
                    del owner
            if not rang and watches and progress == seen and PLANNER.unplanned:
                break
            seen = progress
            nap = FIRST_NAP_S if rang else min(2 * nap, LONGEST_NAP_S)
        if pool.watching.pop(self, None) is None and not pool.watching:
            # Whoever relied on this one to watch does not know that it is off to work.
            pool.ring()
        return False

    def _drain(self) -> None:
        """Go through the log as its planner for a while, running what can run at once."""
        pool = self.pool
        holder = tenures.latest(PLANNER.tenure)
        if not holder.is_idle and holder.owner != get_ident() and not _is_running(holder):
            # Another thread is planning right now; if it does not come on, it is suspended.
            seen = PLANNER.progress
            if pool.bell.sleep(FIRST_NAP_S) or PLANNER.progress != seen:
                return
        tenure = PLANNER.take()
        segment, successor, heap = tenure.segment, tenure.successor, pool.heap
        entries, base, epoch, start = segment.entries, segment.base, tenure.states, tenure.done
        assert start is not None
        # Nothing has the worker itself for its pool.
        own: object = self
        regional: object = self
        if not pool.is_sealed():
            own, regional = pool, pool.regional
        if len(entries) > start + 1 and not pool.watching:
            # What comes behind should not have to wait for the first op.
            pool.ring()
        blocked = 0
        for index in range(start, start + tenures.STRETCH):
            if heap:
                return
            try:
                op: Any = entries[index]
            except IndexError:
                return
            tenure.started = index
            if successor:
                return
            is_clear = op._pool is own
            if is_clear:
                for variable in op._reads:
                    if variable._states:
                        is_clear = False
                for variable in op._writes:
                    if variable._states:
                        is_clear = False
                if not is_clear:
                    is_clear = PLANNER.is_clear(op, epoch)
            elif op._pool is regional:
                is_clear = PLANNER.is_clear(op, epoch)
            if is_clear:
                try:
                    # The claim: one thread succeeds.
                    fn = op._fn
                    del op._fn
                except AttributeError:
                    pass
                else:
                    self.op = op
                    op.number = base + index
                    try:
                        op._result = fn()
                    except BaseException as error:
                        self._failed(op, error, epoch)
                    else:
                        self.ran += 1
                    # `records.finish`, written out.
                    op.finished = True
                    if op._record is not None:
                        records.finish(op)
                        issue.settle()
                    if not successor:
                        entries[index] = DONE
                    tenure.done = index + 1
                    continue
            if op is SEAL:
                PLANNER.next_segment(tenure)
                return
            PLANNER.enter(op, base + index, epoch)
            issue.settle()
            if not successor:
                entries[index] = DONE
            tenure.done = index + 1
            if op.__class__ is Close:
                return
            blocked += 1
            if blocked > AHEAD:
                pool.bell.sleep(FIRST_NAP_S)
                return
        if index >= SEGMENT and not segment.is_sealed:
            segment.seal()

    def _run(self, op: Op) -> None:
        """Run an op that was planned, unless another thread has claimed it."""
        try:
            fn = op._fn
            del op._fn
        except AttributeError:
            return
        ledger = self.pool.ledger
        failure = op.failure = poison(op)
        if failure is None:
            self.op = op
            start = time.perf_counter()
            try:
                op._result = fn()
            except BaseException as error:
                ledger.fail(op, error)
                ledger.counters.failed_ops.next()
            else:
                self.ran += 1
                if ledger.recorder is not None:
                    ledger.recorder.ran(op, self.name, start)
        else:
            ledger.note(failure)
            ledger.counters.failed_ops.next()
            if ledger.recorder is not None:
                ledger.recorder.dropped(op)
        del fn
        records.finish(op)
        ledger.ended()

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
