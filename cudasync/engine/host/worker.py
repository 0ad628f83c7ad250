"""Floor 2. One worker thread: takes ready ops, drains the log, sleeps."""

from __future__ import annotations

import time
from contextlib import suppress
from threading import get_ident
from typing import TYPE_CHECKING, Any

from cudasync.engine import current
from cudasync.engine.device.ready import READY, settle
from cudasync.engine.host import state_transitions, visiting
from cudasync.engine.host.drain_loop import drain
from cudasync.engine.ledger import poison
from cudasync.engine.lifecycle import refusal
from cudasync.engine.log import node as nodes
from cudasync.engine.log.combiner import COMBINER, LONG_S
from cudasync.engine.op import Op, claim, salvaged
from cudasync.engine.op_classes import DEVICE_OPS, PlainOp

if TYPE_CHECKING:
    from cudasync.engine.host.pool import WorkerPool
    from cudasync.engine.host.states import Slot
    from cudasync.engine.log.epoch import Epoch


class Worker:
    """The state of one worker thread; other threads only read it."""

    __slots__ = (
        "count",
        "host",
        "ident",
        "is_ending",
        "lends",
        "name",
        "next_pool",
        "op",
        "pool",
        "successors",
        "token",
        "waits",
    )

    def __init__(self, pool: WorkerPool) -> None:
        self.pool = pool
        self.name = ""
        # Of its thread, which makes it.
        self.ident = get_ident()
        # The number of waits in its op: more than one if several tasks of a loop wait.
        self.waits = 0
        # While it waits: another worker may have its slot.
        self.lends = False
        # A cell: the slot of the worker that replaces this one, which then ends.
        self.successors: list[Slot] = []
        # Another pool whose op it runs: see `host.visiting`.
        self.host: WorkerPool | None = None
        # True while it notifies at the end of an op. If an op of another pool becomes ready then,
        # `next_pool` is that pool.
        self.is_ending = False
        self.next_pool: WorkerPool | None = None
        # Its token for claims: refers to nothing, since ops may be kept.
        self.token = object()
        # The op that runs, or ran last.
        self.op: Op | None = None
        # The number of ops that ran without failing. While it drains the log: the number before,
        # its epoch, and the index in the segment from which on each op counts.
        self.count: tuple[int, Epoch | None, int] = 0, None, 0

    @property
    def ran(self) -> int:
        """The number of ops that ended without failing. Exact whenever no op is under way."""
        while True:
            count = self.count
            ran, epoch, first = count
            if epoch is None:
                return ran
            done, op = epoch.done or 0, self.op
            # `skip` changes `count` before the epoch's `done`.
            if self.count is count:
                break
        if done < first:
            return ran
        # An op is over before the epoch's `done` includes it, and its waiter may look here then.
        is_late = op is not None and op.finished and op.number == epoch.segment.base + done
        return ran + done - first + is_late

    @property
    def is_in_op(self) -> bool:
        """True while it seems to run the function of `op`."""
        op = self.op
        return op is not None and not op.finished

    def main(self) -> None:
        """Work until the pool ends."""
        with current.working(self):
            while True:
                state_transitions.wake(self)
                # Its ops push to this engine; a strong reference, but not while it sleeps.
                current.enter_engine(self.pool.owner())
                self._work()
                # Hold nothing while asleep, so that an op's arrays can be freed.
                self.op = None
                current.enter_engine(None)
                # A surplus worker leaves even if there is work: other workers do it.
                is_over = self.successors or self.pool.slots.is_one_too_many()
                if is_over or state_transitions.rest(self):
                    state_transitions.leave(self)
                    return

    def is_over(self) -> bool:
        """True if the worker must end: the pool is closed, has one too many, or replaced it."""
        pool = self.pool
        if (pool.is_closed and not pool.heap) or self.successors:
            return True
        return pool.slots.is_one_too_many()

    def _work(self) -> None:
        """Work while the worker holds a permit of its pool."""
        pool = self.pool
        try:
            if pool.permits.take(self):
                self._work_on()
        finally:
            self.pass_on()
            if pool.permits.give_back(self):
                pool.ring()

    def _work_on(self) -> None:
        """Plan and run until there is nothing to do, or the worker must rest or end."""
        pool = self.pool
        while True:
            if self.next_pool is not None and not visiting.visit(self):
                return
            op = pool.take()
            if op is not None:
                if pool.heap or COMBINER.unplanned:
                    # More work than this worker can do while it runs the op.
                    pool.ring()
                self.run(op)
                if READY:
                    settle()
            elif not COMBINER.unplanned or COMBINER.is_left_to_a_waiter:
                return
            elif not pool.is_plain:
                COMBINER.plan()
                settle()
            else:
                state_transitions.attend(self)
                is_ahead = drain(self)
                self.count = self.ran, None, 0
                if is_ahead:
                    return
            del op
            if pool.slots.surplus or self.successors:
                return

    def run(self, op: Op) -> None:
        """Run a planned op, unless another thread has claimed it."""
        if op.__class__ in DEVICE_OPS:
            self._issue(op)
            return
        fn = claim(op, self.token)
        if fn is None:
            return
        pool = self.pool
        ledger = pool.ledger
        sources = nodes.gate_of(op).sources
        failure = poison(op, sources) if sources else None
        if failure is None and op._engine._is_dropped:
            failure = refusal.dropped(op)
        if failure is None:
            self.op = op
            # 0 if the op's duration is not needed.
            start = time.perf_counter() if pool.spread or ledger.recorder is not None else 0.0
            try:
                op._result = fn()
            except BaseException as error:
                ledger.fail(op, error)
                ledger.counters.failed_ops.next()
            else:
                if isinstance(op, PlainOp):
                    # Other threads read it from now on, and an unset slot costs an exception.
                    op._failure = None
                if self.host is None:
                    self.count = self.count[0] + 1, None, 0
                else:
                    self.host.visits.next()
                if ledger.recorder is not None:
                    ledger.recorder.ran(op, self.name, start)
                elif pool.spread and start:
                    is_long = time.perf_counter() - start > LONG_S
                    pool.spread = state_transitions.SPREAD if is_long else pool.spread - 1
        else:
            if op._salvage is not None and not op._engine._is_dropped:
                self.op = op
                # An op that is claimed ends, also if this fails: all that it writes is wrong then.
                with suppress(BaseException):
                    salvaged(op)
            op.failure = failure
            op._engine._failures.note(failure, op)
            ledger.counters.failed_ops.next()
            if ledger.recorder is not None:
                ledger.recorder.dropped(op)
        self.is_ending = True
        nodes.finish(op)
        self.is_ending = False
        if ledger.held:
            ledger.ended()
        # As in `drain`.
        del fn, op, failure, sources

    def _issue(self, op: Op) -> None:
        """Issue a device op that may block in the driver, unless another thread has claimed it."""
        issuer: Any = op._pool
        self.op = op
        issuer.issue(op)
        # The op may continue on its stream; this thread is not in it any more.
        self.op = None

    def pass_on(self) -> None:
        """The worker does something else first, so another thread must run the op."""
        host, self.next_pool = self.next_pool, None
        if host is not None:
            host.ring()

    def skip(self, index: int) -> None:
        """Do not count the entry at `index` of the segment that it drains."""
        ran, epoch, first = self.count
        self.count = ran + index - first, epoch, index + 1

    def failed(self, op: Op, error: BaseException, epoch: int) -> None:
        """An op that ran without a node failed: from now on it poisons the data that it wrote."""
        ledger = self.pool.ledger
        ledger.fail(op, error)
        ledger.counters.failed_ops.next()
        COMBINER.enter_op(op, op.number, epoch)
