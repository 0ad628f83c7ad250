"""Floor 2. Host workers: threads that plan host ops and run them.

A worker takes ops that are ready, larger priority first, then push order. When there are none it
becomes the combiner and goes through the log; an op of its own pool that nothing blocks it runs on
the spot: that op never gets a node, and in a program whose ops are short no dependency
is ever built. When the op turns out to be long, some other thread takes over planning meanwhile.

Who looks at the log? `searching` holds the workers that will, without being told; a push that finds
it empty rings. A worker leaves `searching` first and looks at the log once more then, a push
appends first and looks at `searching` then: so one of them sees the other. And while a worker is
in `searching`, or rung for, the watchdog looks after the pool: see `host.watchdog`.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from cudasync.atomic import Bell, Tickets, meet
from cudasync.engine import current
from cudasync.engine.host.slots import Slots
from cudasync.engine.host.states import ASLEEP, BLOCKED, WATCHING, WORKING, Slot, States
from cudasync.engine.host.watchdog import WATCHDOG
from cudasync.engine.host.worker import Worker
from cudasync.engine.log.combiner import COMBINER

if TYPE_CHECKING:
    import weakref
    from collections.abc import Iterator

    from cudasync.engine.engine import Engine
    from cudasync.engine.ledger import Ledger
    from cudasync.engine.op import Op


# The pool of the threads that issue copies from and to pageable memory, in which the driver waits.
# One that copies in and one that copies out can be at it at once.
COPY_POOL, COPIERS = "(copies)", 2
# Workers have nothing left to do when they are closed; one that does not end is suspended.
PATIENCE_S = 5.0


class Regional:
    """A pool as the place of ops that name byte ranges: these are looked at more closely."""

    def __init__(self, pool: WorkerPool) -> None:
        self.put, self.query, self.watch = pool.put, pool.query, pool.watch


class WorkerPool:
    """Up to `size` threads that run host ops, besides those that wait inside one."""

    def __init__(self, name: str, size: int, ledger: Ledger, owner: weakref.ref[Engine]) -> None:
        self.name = name
        self.size = size
        self.ledger = ledger
        # A sleeping worker keeps no engine alive.
        self.owner = owner
        # False once ops are ranked, traced or counted: then all are planned before one is chosen.
        self.is_plain = ledger.recorder is None or not ledger.recorder.needs_plans
        # True once ops differ in priority, or count; what a trace plans is not ranked by that.
        self.is_ranked = False
        self.regional = Regional(self)
        # Not 0 while ops are long: then what is ready is shared out, not run by who plans it.
        self.spread = 0
        self.bell = Bell()
        self.is_silent = self.bell.is_silent
        # Ready ops: (-priority, number) in a heap, the op under its number. Each heap operation
        # is one C call, comparing integers; an op that comes twice is taken out of `_ready` once.
        self.heap: list[tuple[int, int]] = []
        self._ready: dict[int, Op] = {}
        self.states = States()
        self.searching = self.states.searching
        self.slots = Slots(size, self._main)
        # All that have not ended, also those that were replaced.
        self.workers: dict[Worker, None] = {}
        # Written by the watchdog alone: it looks after the pool.
        self.is_watched = False
        self.is_closed = False
        # Something was put and nobody rung for it: see `host.awaited`.
        self.is_put_off = False
        self._started = Tickets()
        self._ended: list[int] = []
        # Short ops that were run where they were pushed: see `host.at_once`.
        self.ran_by_pushers = Tickets()
        self._exits = Bell()

    @property
    def ran(self) -> int:
        """How many ops have run to their end without failing."""
        by_workers = sum(worker.ran for worker in list(self.workers)) + sum(self._ended)
        return by_workers + self.ran_by_pushers.taken

    def rank(self, *, lasts: bool = True) -> None:
        """From now on plan everything before choosing; `lasts` says that ops differ, or count."""
        if lasts:
            self.is_ranked = True
        was_plain, self.is_plain = self.is_plain, False
        if was_plain:
            # An entry for nothing: a worker that goes through the log looks up from it.
            heappush(self.heap, (0, 0))

    def put(self, op: Op) -> None:
        """Take an op that is ready. Never blocks."""
        number = op.number
        self._ready[number] = op
        heappush(self.heap, (-op.priority, number))
        if len(self.heap) > 1 and self.is_plain:
            # Somebody was rung for the other one, or is about to take it. Who takes one looks at
            # the heap then, and rings for what is left.
            return
        worker = current.worker()
        if worker is None or worker.pool is not self or worker.is_in_op:
            self.ring()
        # Else the calling worker takes it next: to wake another one would only slow it down. One
        # that is in an op found out that another one is over, and may stay there for long.

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
        """A host op says itself when it is over."""

    def watch(self, op: Op) -> None:
        """A host op says itself when it is over."""

    def ring(self) -> None:
        """There is work: wake a worker, or start one. Never blocks."""
        if not self.is_watched:
            # First, so that it is seen to if this thread comes no further.
            WATCHDOG.watch(self)
        # `States.now`, and what `Slots.start` looks at first, written out.
        states = list(self.states.rows.values())
        if ASLEEP in states or WATCHING in states:
            if self.is_silent():
                self.bell.ring()
        elif self.slots.vacant:
            self.slots.start()

    def rescue(self) -> None:
        """Nothing has moved for a while: if fewer run ops than may, see to it that others can.

        Who is awake and not in an op is suspended inside the engine, and is replaced. Where all
        such sleep, the one that was to ring may be suspended, or the one that took the ring: so the
        first remedy is another ring. If nobody takes that, one of them is replaced.
        """
        rows = self.states.rows.copy()
        at_hand = [worker for worker, state in rows.items() if state is not BLOCKED]
        free = [worker for worker in at_hand if not worker.is_in_op]
        if len(at_hand) - len(free) >= self.size or self.slots.start():
            return
        stuck = [worker for worker in free if rows[worker] is not ASLEEP]
        if free and not stuck and self.is_silent():
            self.bell.ring()
        elif free:
            (one, *_) = stuck or free
            self.slots.replace(one)
            # Nobody is to count on it, if somebody did.
            self.states.leave(one)
        else:
            self.slots.start_again()

    @contextmanager
    def blocked(self, worker: Worker) -> Iterator[None]:
        """The calling worker is about to block: let another thread take its place meanwhile.

        Once for each worker: of a loop with many tasks, in one op, each may wait here.
        """
        worker.waits += 1
        if worker.waits == 1:
            # One that was replaced has no slot to lend.
            worker.lends = not worker.successors
            self.states.enter(worker, BLOCKED)
            if worker.lends:
                self.slots.lend()
            self.states.uncover()
            self.look_again()
        try:
            yield
        finally:
            worker.waits -= 1
            if not worker.waits:
                # Else it waits for others still.
                if worker.lends and not self.slots.take_back():
                    self.bell.ring()
                self.states.enter(worker, WORKING)

    def look_again(self) -> None:
        """The calling worker is no longer one to count on: who pushed meanwhile may have."""
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
        """Let the workers end; wait for those that are not the caller."""
        self.dismiss()
        worker = current.worker()
        own = worker is not None and worker.pool is self
        deadline = time.monotonic() + PATIENCE_S
        # Others may close at the same time, and take the rings that are meant for this call.
        while len(self._ended) < self._started.taken - own and time.monotonic() < deadline:
            self._exits.sleep(0.01)

    def _main(self, slot: Slot) -> None:
        """A thread that was started for `slot`."""
        worker = Worker(self)
        # First its row, then the slot: who takes a slot and is suspended shows in the table.
        self.states.enter(worker, WORKING)
        if not self.slots.take(slot, worker.token):
            self.states.leave(worker)
            return
        worker.name = f"worker {self.name} {self._started.next() - 1}"
        self.workers[worker] = None
        try:
            worker.main()
        finally:
            self.workers.pop(worker, None)
            self._ended.append(worker.ran)
            self.states.leave(worker)
            if self.is_closed:
                self.bell.ring()
            self._exits.ring()
