"""Floor 2. Host workers: threads that plan host ops and run them.

A worker takes ops that are ready, larger priority first, then push order. When there are none it
becomes the planner and goes through the log; an op of its own pool that nothing blocks it runs on
the spot: that op never gets a record, and in a program whose ops are short no dependency
is ever built. When the op turns out to be long, some other thread takes over planning meanwhile.

Who looks at the log? `eyes` holds the workers that will, without being told; a push that finds
it empty rings. A worker that runs an op may be kept by it for long, so it stays in `eyes` only
if another one watches (or none is there to do so); the watcher looks at growing intervals whether
planning goes on. A worker leaves `eyes` first and looks at the log once more then, a push
appends first and looks at `eyes` then: so one of them sees the other.
"""

from __future__ import annotations

import time
from _thread import start_new_thread
from contextlib import contextmanager
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from cudasync.atomic import Bell, Tickets
from cudasync.engine import current
from cudasync.engine.planner import PLANNER
from cudasync.engine.worker import Worker

if TYPE_CHECKING:
    import weakref
    from collections.abc import Iterator

    from cudasync.engine.engine import Engine
    from cudasync.engine.ledger import Ledger
    from cudasync.engine.op import Op


# Workers have nothing left to do when they are closed; one that does not end is suspended.
PATIENCE_S = 5.0


class _Regional:
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
        self.is_plain = ledger.recorder is None
        self.regional = _Regional(self)
        # Not 0 while ops are long: then what is ready is shared out, not run by who plans it.
        self.spread = 0
        self.bell = Bell()
        self.is_silent = self.bell.is_silent
        # Ready ops: (-priority, number) in a heap, the op under its number. Each heap operation
        # is one C call, comparing integers; an op that comes twice is taken out of `_ready` once.
        self.heap: list[tuple[int, int]] = []
        self._ready: dict[int, Op] = {}
        # Workers: that will look at the log; that are not asleep; that are; that watch. Each
        # worker adds and removes itself.
        self.eyes: dict[Worker, None] = {}
        self.active: dict[Worker, None] = {}
        self.idle: dict[Worker, None] = {}
        self.watching: dict[Worker, None] = {}
        self.is_closed = False
        # One item per worker that may be started; one per worker that is to end.
        self.vacant: list[object] = [object() for _ in range(size)]
        self.surplus: list[None] = []
        self._started = Tickets()
        self._workers: dict[Worker, None] = {}
        self._ended: list[int] = []
        self._exits = Bell()

    @property
    def ran(self) -> int:
        """How many ops have run to their end without failing."""
        return sum(worker.ran for worker in list(self._workers)) + sum(self._ended)

    def rank(self) -> None:
        """From now on plan everything before choosing."""
        self.is_plain = False
        # An entry for nothing: a worker that goes through the log looks up from it.
        heappush(self.heap, (0, 0))

    def put(self, op: Op) -> None:
        """Take an op that is ready. Never blocks."""
        had = len(self.heap)
        self._ready[op.number] = op
        heappush(self.heap, (-op.priority, op.number))
        worker = current.worker()
        if worker is None or worker.pool is not self or had:
            self.ring()
        # Else the calling worker takes it next: to wake another one would only slow it down.

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
        if self.idle:
            if self.is_silent():
                self.bell.ring()
        elif self.vacant:
            self._start()

    def _start(self) -> None:
        """Start a worker if there is a place for one."""
        place = None
        try:
            place = self.vacant[-1]
            self.vacant.remove(place)
            # Not a `threading.Thread`, whose start waits for the new thread and takes a lock.
            start_new_thread(self._main, ())
        except (IndexError, ValueError):
            # None is left, or another thread was quicker.
            return
        except BaseException:
            # It can't start, or Ctrl-C. In doubt rather one worker too many than one too few.
            if place is not None and place not in self.vacant:
                self.vacant.append(place)
            raise

    def rescue(self) -> None:
        """Nothing has moved for a while. If ops are ready and fewer run than may, a worker is
        suspended inside the engine, or somebody who was about to start one: start another."""
        running = sum(worker.is_in_op for worker in list(self.active))
        if self.heap and running < self.size:
            self.vacant.append(object())
            self._start()

    @contextmanager
    def blocked(self, worker: Worker) -> Iterator[None]:
        """The calling worker is about to block: let another thread take its place meanwhile."""
        self.active.pop(worker, None)
        self.eyes.pop(worker, None)
        self.vacant.append(object())
        if self.heap or PLANNER.unplanned:
            self.ring()
        try:
            yield
        finally:
            try:
                self.vacant.pop()
            except IndexError:
                self.surplus.append(None)
                self.bell.ring()
            self.active[worker] = None

    def dismiss(self) -> None:
        """Let the workers end once nothing is ready. Never blocks."""
        self.is_closed = True
        self.vacant.clear()
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

    def is_over(self) -> bool:
        """True if the calling worker is to end, since the pool is closed or has one too many."""
        if self.is_closed and not self.heap:
            return True
        try:
            self.surplus.pop()
        except IndexError:
            return False
        return True

    def _main(self) -> None:
        worker = Worker(self, self._started.next())
        self._workers[worker] = None
        try:
            worker.main()
        finally:
            self._workers.pop(worker, None)
            self._ended.append(worker.ran)
            for workers in (self.eyes, self.active, self.idle, self.watching):
                workers.pop(worker, None)
            if self.is_closed:
                self.bell.ring()
            self._exits.ring()
