"""Floor 2. Worker pools: threads that plan host ops and run them.

A worker takes ready ops, larger priority first, then in push order. If there are none, it becomes
the combiner and drains the log. It runs each unblocked op of its own pool at once: such an op never
gets a node, and a program of short ops never builds a dependency. If the op turns out to be long,
another thread takes over planning meanwhile.

`searching` holds the workers that will look at the log without a ring; a push that finds it empty
rings. A worker first leaves `searching`, then looks at the log once more; a push first appends,
then looks at `searching`. So one of them sees the other. While a worker is in `searching`, or was
rung for, the watchdog watches the pool: see `host.watchdog`.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from cudasync.atomic import Bell, Tickets, meet
from cudasync.engine import current
from cudasync.engine.host.permits import Permits
from cudasync.engine.host.slots import Slots
from cudasync.engine.host.states import ASLEEP, AWAY, BLOCKED, WATCHING, WORKING, Slot, States
from cudasync.engine.host.visiting import WORKERS, will_visit
from cudasync.engine.host.watchdog import WATCHDOG
from cudasync.engine.host.worker import Worker
from cudasync.engine.log.combiner import COMBINER

if TYPE_CHECKING:
    import weakref
    from collections.abc import Iterator

    from cudasync.engine.engine import Engine
    from cudasync.engine.ledger import Ledger
    from cudasync.engine.op import Op


# The pool of threads that issue copies from and to pageable memory, in which the driver waits.
# Two threads: a copy in and a copy out can be issued at once.
COPY_POOL, COPIERS = "(copies)", 2
# Closed workers have nothing left to do; a worker that does not end is suspended.
PATIENCE_S = 5.0
# Ops may rely on the only thread of a pool, and on a busy machine a thread comes late: it is
# replaced only after so long without progress.
ONLY_THREAD_S = 1.0


class Regional:
    """A pool as the place of ops that name byte ranges, which need more checks."""

    def __init__(self, pool: WorkerPool) -> None:
        self.put, self.query, self.watch = pool.put, pool.query, pool.watch
        self.pool = pool


class WorkerPool:
    """Up to `size` threads that run host ops, besides threads that wait inside an op."""

    def __init__(self, name: str, size: int, ledger: Ledger, owner: weakref.ref[Engine]) -> None:
        self.name = name
        self.size = size
        self.ledger = ledger
        # A sleeping worker keeps no engine alive.
        self.owner = owner
        # False once ops are ranked, traced or limited: then all are planned before one is chosen.
        self.is_plain = ledger.recorder is None or not ledger.recorder.needs_plans
        # True once ops have priorities or a limit; a trace alone does not rank.
        self.is_ranked = False
        self.regional = Regional(self)
        # Not 0 while ops are long: then workers share ready ops, and the planner runs fewer.
        self.spread = 0
        self.bell = Bell()
        self.is_silent = self.bell.is_silent
        # Ready ops: (-priority, number) in a heap, the op in `_ready` under its number. Each heap
        # operation is one C call that compares integers; an op put twice is in `_ready` once.
        self.heap: list[tuple[int, int]] = []
        self._ready: dict[int, Op] = {}
        self.states = States()
        self.searching = self.states.searching
        self.slots = Slots(size, self._main)
        self.permits = Permits(size)
        # Workers of other pools may run its ops, and its workers theirs: see `host.visiting`.
        self.is_open = size > 1 and name != COPY_POOL
        # Ops that workers of other pools ran without failing.
        self.visits = Tickets()
        # All living workers, also replaced ones.
        self.workers: dict[Worker, None] = {}
        # What `_is_only_late` saw first, and when.
        self._standstill: tuple[object, float] = None, 0.0
        # The watchdog watches the pool. Only the watchdog writes it.
        self.is_watched = False
        self.is_closed = False
        # An op was put and its ring delayed: see `host.awaited_pool`.
        self.is_put_off = False
        self._started = Tickets()
        self._ended: list[int] = []
        # Short ops that their push ran: see `host.inline_execution`.
        self.ran_by_pushers = Tickets()
        self._exits = Bell()

    @property
    def ran(self) -> int:
        """The number of ops that ended without failing."""
        by_workers = sum(worker.ran for worker in list(self.workers)) + sum(self._ended)
        return by_workers + self.ran_by_pushers.taken + self.visits.taken

    def rank(self, *, lasts: bool = True) -> None:
        """From now on plan all ops before choosing one; `lasts`: for priorities or a limit."""
        if lasts:
            self.is_ranked = True
        was_plain, self.is_plain = self.is_plain, False
        if was_plain:
            # A dummy entry: it makes a draining worker look up from the log.
            heappush(self.heap, (0, 0))

    def put(self, op: Op) -> None:
        """Take an op that is ready. Never blocks."""
        number = op.number
        self._ready[number] = op
        heappush(self.heap, (-op.priority, number))
        if len(self.heap) > 1 and self.is_plain:
            # A worker was rung for the other op, or is about to take it. A worker that takes an op
            # looks at the heap afterwards, and rings for the rest.
            return
        worker = current.worker()
        is_next = (
            worker is not None
            and not worker.is_in_op
            and (worker.pool is self or will_visit(worker, self))
        )
        if not is_next:
            self.ring()
        # Else the calling worker takes the op next: waking another worker would only slow it down.
        # A worker inside an op may stay there for long, so it rings.

    def take(self) -> Op | None:
        """The next ready op; None if there is none."""
        while self.heap:
            try:
                _, number = heappop(self.heap)
            except IndexError:
                break
            op = self._ready.pop(number, None)
            if op is not None:
                return op
        return None

    def query(self, op: Op) -> None:
        """A host op notifies by itself when it is over."""

    def watch(self, op: Op) -> None:
        """A host op notifies by itself when it is over."""

    def ring(self) -> None:
        """There is work: wake a worker, or start one. Never blocks."""
        if not self.is_watched:
            # First, so that the watchdog acts if this thread comes no further.
            WATCHDOG.watch(self)
        # `States.now` and the first check of `Slots.start`, inlined.
        states = list(self.states.rows.values())
        if ASLEEP in states or WATCHING in states:
            if self.is_silent():
                self.ring_for_a_sleeper()
        elif self.slots.vacant:
            self.slots.start()

    def ring_for_a_sleeper(self) -> None:
        """Ring the bell: a worker was seen at rest. If none takes the ring, start one."""
        self.bell.ring()
        # The worker may have come for another reason meanwhile: see `take_ring`.
        if not self.is_silent() and not self.states.is_any_at_rest():
            self.slots.start()

    def take_ring(self) -> None:
        """The caller has changed its row or lent its slot. It must `meet` and look for work.

        A worker at rest may come without having taken the ring that was meant for it. Pushes do not
        ring while the bell rings, so the ring may stay only if a worker at rest can take it.
        """
        if not self.is_silent() and not self.states.is_any_at_rest():
            self.bell.sleep(0)

    def rescue(self) -> None:
        """There was no progress for a while: if fewer workers run ops than may, provide another.

        An awake worker outside an op is suspended inside the engine, and is replaced. If all free
        workers sleep, the ringing thread or the worker that took the ring may be suspended. So the
        first remedy is another ring. If no worker takes it, one of them is replaced.
        """
        rows = self.states.rows.copy()
        at_hand = [
            each
            for each, state in rows.items()
            if state is not BLOCKED and not (state is AWAY and each.is_in_op)
        ]
        free = [worker for worker in at_hand if not worker.is_in_op]
        visitors = [each for each in self.permits.holders.copy() if each.host is self]
        for visitor in visitors:
            if not visitor.is_in_op and self.permits.give_back(visitor):
                self.ring()
        in_ops = len(at_hand) - len(free) + sum(each.is_in_op for each in visitors)
        if in_ops >= self.size or self.slots.start():
            return
        stuck = [worker for worker in free if rows[worker] is not ASLEEP]
        if free and not stuck and self.is_silent():
            self.ring_for_a_sleeper()
        elif free and not self._is_only_late():
            (one, *_) = stuck or free
            self.slots.replace(one)
            # No push may rely on it any more.
            self.states.leave(one)
            if self.permits.give_back(one):
                self.ring()
        elif not free:
            self.slots.start_again()

    @property
    def progress(self) -> object:
        """A value that is equal at two moments if no op of the pool ended in between."""
        return self.ran, self.ledger.counters.failed_ops.taken, self.heap[:1]

    def _is_only_late(self) -> bool:
        """True if the only worker of the pool may just be late: see `ONLY_THREAD_S`."""
        if self.size > 1:
            return False
        now, progress = time.monotonic(), self.progress
        seen, since = self._standstill
        if progress != seen:
            self._standstill, since = (progress, now), now
        return now - since < ONLY_THREAD_S

    @contextmanager
    def blocked(self, worker: Worker) -> Iterator[None]:
        """The calling worker is about to block: let another thread take its place meanwhile.

        Only the first wait of a worker counts: in one op, each task of a loop may wait here.
        """
        worker.waits += 1
        # In an op of another pool, its slot is lent already. A guest has none.
        is_home = worker.host is None
        place = worker.host or self
        if worker.waits == 1 and place.permits.give_back(worker):
            place.ring()
        if worker.waits == 1 and is_home:
            # A replaced worker has no slot to lend.
            worker.lends = not worker.successors
            self.states.enter(worker, BLOCKED)
            if worker.lends:
                self.slots.lend()
            self.states.uncover()
            self.take_ring()
            self.look_again()
        try:
            yield
        finally:
            worker.waits -= 1
            if not worker.waits:
                # Else other tasks of the op still wait.
                place.permits.take_beyond(worker)
            if not worker.waits and is_home:
                if worker.lends and not self.slots.take_back():
                    self.wake_surplus()
                self.states.enter(worker, WORKING)

    def wake_surplus(self) -> None:
        """There is one worker too many, which must end: perhaps a sleeping one."""
        if self.states.is_any_at_rest():
            self.ring_for_a_sleeper()

    def look_again(self) -> None:
        """Pushes may have relied on the calling worker, and may not any more: look, and ring."""
        COMBINER.log.meet()
        meet(self.heap)
        if self.heap or COMBINER.unplanned:
            self.ring()

    def dismiss(self) -> None:
        """Let the workers end once nothing is ready. Never blocks."""
        self.is_closed = True
        self.slots.vacant.clear()
        # Each worker that ends rings for the next.
        self.bell.ring()

    def close(self) -> None:
        """Let the workers end; wait for all workers except the caller."""
        self.dismiss()
        worker = current.worker()
        own = worker is not None and worker.pool is self
        deadline = time.monotonic() + PATIENCE_S
        # A concurrent `close` may take the rings that are meant for this call.
        while len(self._ended) < self._started.taken - own and time.monotonic() < deadline:
            self._exits.sleep(0.01)

    def _give_up_place(self, worker: Worker) -> None:
        """The thread of `worker` ends by an error: another thread may have its place."""
        host = worker.host
        if host is not None:
            # Its own slot is lent.
            if host.permits.give_back(worker):
                host.ring()
        elif not worker.successors:
            self.slots.lend()

    def _main(self, slot: Slot) -> None:
        """The main function of a thread that was started for `slot`."""
        worker = Worker(self)
        # First its row, then the slot: so the table shows a suspended holder of a slot.
        self.states.enter(worker, WORKING)
        if not self.slots.take(slot, worker.token):
            self.states.leave(worker)
            return
        WORKERS[worker.ident] = worker
        worker.name = f"worker {self.name} {self._started.next() - 1}"
        self.workers[worker] = None
        try:
            worker.main()
        except BaseException:
            # An error of ours, or no memory is left. The next push, or the watchdog, starts another
            # worker: not this thread, since an error that repeats must not keep a processor busy.
            self._give_up_place(worker)
            raise
        finally:
            WORKERS.pop(worker.ident, None)
            self.workers.pop(worker, None)
            self._ended.append(worker.ran)
            self.states.leave(worker)
            if self.is_closed:
                self.bell.ring()
            self._exits.ring()
