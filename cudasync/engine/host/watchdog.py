"""Floor 2. The watchdog: one thread that ensures that pushed ops run, also if nobody waits.

A push relies on a searching worker, and a ring relies on a waking worker. Such a worker may be
suspended, and no further push may follow. So a second thread answers for the pool: until the pool
is at rest, the watchdog checks at growing intervals whether its ops make progress, and acts like a
waiter (`stand_in`). Workers need the watchdog only if a worker is suspended, and the watchdog needs
workers only if it is suspended: of any two threads one is enough.

The model is `sysmon` of Go's runtime: a thread without its own work, which naps while others work,
sleeps when they all sleep, and takes work away from a stuck thread.

A pool is at rest when its workers sleep and have nothing left to do. The watchdog takes its mark
(`is_watched`) off the pool before its last check. A ringing thread has appended before it looks at
the mark, and a worker is awake in the table before it looks.
"""

from __future__ import annotations

import time
from _thread import start_new_thread
from contextlib import suppress
from typing import TYPE_CHECKING

from cudasync.atomic import Bell, meet, offer
from cudasync.engine import current
from cudasync.engine.device.ready import READY, settle
from cudasync.engine.host.states import ASLEEP, BLOCKED
from cudasync.engine.log import node as nodes
from cudasync.engine.log.combiner import COMBINER
from cudasync.engine.op_classes import DeviceOp

if TYPE_CHECKING:
    from cudasync.engine.engine import Engine
    from cudasync.engine.host.pool import WorkerPool
    from cudasync.engine.op import Op

# Usually a worker makes progress within this time.
FIRST_NAP_S = 20e-3
# The longest nap while nothing moves.
LONGEST_NAP_S = 0.25
# After so many naps without progress, a thread is taken for suspended.
NAPS = 3


class Watchdog:
    """The watched pools, and the watchdog's thread."""

    def __init__(self) -> None:
        # The watched pools. Any thread adds a pool, and only the watchdog removes one.
        self.pools: dict[WorkerPool, None] = {}
        self.bell = Bell()
        # `_is_started` is set once a thread was started. `_threads` is a cell: its first thread is
        # the watchdog.
        self._is_started = False
        self._threads: list[object] = []

    def watch(self, pool: WorkerPool) -> None:
        """Watch `pool` until it is at rest. Never blocks."""
        self.pools[pool] = None
        if not self._is_started:
            # RuntimeError: the interpreter is ending and starts no thread.
            with suppress(RuntimeError):
                start_new_thread(self._main, ())
                self._is_started = True
        if self.bell.is_silent():
            self.bell.ring()

    def start_anew(self) -> None:
        """In a forked child: there is no watchdog thread, and no watched pool."""
        self.__init__()  # type: ignore[misc]

    def _main(self) -> None:
        me = object()
        if offer(self._threads, me) is not me:
            return
        try:
            with current.working(None):
                self._work()
        finally:
            # It ends only by an error; the next ring starts another watchdog.
            self._threads, self._is_started = [], False

    def _work(self) -> None:
        seen: dict[WorkerPool, _Looks] = {}
        nap = FIRST_NAP_S
        while True:
            self._nap(nap if self.pools else None)
            has_moved = False
            for pool in list(self.pools):
                looks = seen.setdefault(pool, _Looks())
                if pool.is_put_off:
                    pool.ring()
                if self._is_done_with(pool):
                    del seen[pool]
                elif looks.have_changed(pool):
                    has_moved = True
                elif looks.unchanged >= NAPS:
                    stand_in(pool)
                del pool
            nap = FIRST_NAP_S if has_moved else min(2 * nap, LONGEST_NAP_S)

    def _nap(self, nap: float | None) -> None:
        """Nap for the full time, despite rings; with None, sleep until there is a pool."""
        if nap is None:
            self.bell.sleep()
            nap = FIRST_NAP_S
        due = time.monotonic() + nap
        while (left := due - time.monotonic()) > 0:
            for pool in list(self.pools):
                pool.is_watched = True
            self.bell.sleep(left)

    def _is_done_with(self, pool: WorkerPool) -> bool:
        """Stop watching a pool that is at rest; True if it was at rest."""
        if not _is_at_rest(pool):
            return False
        # A thread that finds the mark off adds the pool again.
        self.pools.pop(pool, None)
        pool.is_watched = False
        COMBINER.log.meet()
        meet(pool.heap)
        if _is_at_rest(pool):
            return True
        self.pools[pool] = None
        pool.is_watched = True
        return False


class _Looks:
    """The watchdog's last view of one pool, and for how many naps it was unchanged."""

    __slots__ = ("log", "own", "unchanged")

    def __init__(self) -> None:
        self.log: object = None
        self.own: object = None
        self.unchanged = 0

    def have_changed(self, pool: WorkerPool) -> bool:
        """True unless the pool has work and made no progress with it."""
        log = COMBINER.progress
        own = pool.progress
        # Planning may go on for other pools while ready ops stay here; and the other way round.
        is_stuck = own == self.own and (log == self.log or not COMBINER.unplanned)
        is_left = bool(pool.heap) and own == self.own
        self.log, self.own = log, own
        self.unchanged = self.unchanged + 1 if is_stuck or is_left else 0
        return not self.unchanged


def stand_in(pool: WorkerPool) -> None:
    """Do the work that a suspended or interrupted thread may have left undone for a pool."""
    owner = pool.owner()
    if owner is not None:
        nodes.tell_for_others(owner)
        ask(owner)
        del owner
    settle()
    if pool.heap or (COMBINER.unplanned and not COMBINER.is_slow):
        pool.rescue()


def ask(engine: Engine) -> None:
    """Ask the driver about each watched device op."""
    for op in list(engine._registered):
        if isinstance(op, DeviceOp) and op._is_watched:
            op._pool.query(op)


def _is_at_rest(pool: WorkerPool) -> bool:
    if COMBINER.unplanned or READY or pool.heap:
        return False
    states = pool.states.now()
    if any(state is not ASLEEP and state is not BLOCKED for state in states):
        return False
    if states and not pool.is_silent():
        return False
    owner = pool.owner()
    return owner is None or all(map(_goes_on, list(owner._registered)))


def _goes_on(op: Op) -> bool:
    """True if only the driver has work left for `op`, and `op` is not watched."""
    return isinstance(op, DeviceOp) and op._point is not None and not op._is_watched


WATCHDOG = Watchdog()
