"""Floor 2. The watchdog: one thread that sees to it that pushed ops run, also if nobody waits.

A push counts on a worker that goes through the log, and whoever rings on one that wakes. Such a
worker may be suspended, and the push may be the last one ever made. So somebody else answers for
the pool as well: until the pool is at rest, the watchdog looks at growing intervals whether its ops
go on, and does what a waiter would (`stand_in`). Workers need it only if one of them is
suspended, and it needs them only if it is: of any two threads one is enough.

`sysmon` of Go's runtime is the idea: a thread without a part in the work, which naps while others
work, sleeps when they all do, and takes from a thread that is stuck what others need.

A pool is at rest when its workers sleep and nothing is left that one of them could do. The watchdog
takes its mark off the pool (`is_watched`) before it looks at that for the last time. Who rings has
appended before it looks at the mark, and a worker is in the table as awake before it does.
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

# A worker needs no more than this to come on, mostly; and while nothing moves.
FIRST_NAP_S = 20e-3
LONGEST_NAP_S = 0.25
# So many naps without progress, and somebody is taken to be suspended.
NAPS = 3


class Watchdog:
    """What the watchdog looks after, and its thread."""

    def __init__(self) -> None:
        # Those to look after. Pools are added by anybody, and removed by the watchdog.
        self.pools: dict[WorkerPool, None] = {}
        self.bell = Bell()
        # Set once a thread was started; a cell: the first that came is the watchdog.
        self._is_started = False
        self._threads: list[object] = []

    def watch(self, pool: WorkerPool) -> None:
        """See to `pool` until it is at rest. Never blocks."""
        self.pools[pool] = None
        if not self._is_started:
            # RuntimeError: the interpreter ends, and starts no thread any more.
            with suppress(RuntimeError):
                start_new_thread(self._main, ())
                self._is_started = True
        if self.bell.is_silent():
            self.bell.ring()

    def start_anew(self) -> None:
        """In a forked child: there is no watchdog, and nothing to look after."""
        self.__init__()  # type: ignore[misc]

    def _main(self) -> None:
        me = object()
        if offer(self._threads, me) is not me:
            return
        try:
            with current.working(None):
                self._work()
        finally:
            # If it ends, it has failed, and whoever rings next starts another.
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
        """Nap for so long, whoever rings meanwhile; without a limit, until there is a pool."""
        if nap is None:
            self.bell.sleep()
            nap = FIRST_NAP_S
        due = time.monotonic() + nap
        while (left := due - time.monotonic()) > 0:
            for pool in list(self.pools):
                pool.is_watched = True
            self.bell.sleep(left)

    def _is_done_with(self, pool: WorkerPool) -> bool:
        """Let go of a pool that is at rest."""
        if not _is_at_rest(pool):
            return False
        # Who finds the mark off adds the pool again.
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
    """What the watchdog has seen of one pool, and for how many naps it was the same."""

    __slots__ = ("log", "own", "unchanged")

    def __init__(self) -> None:
        self.log: object = None
        self.own: object = None
        self.unchanged = 0

    def have_changed(self, pool: WorkerPool) -> bool:
        """True unless the pool has something to do, and not come on with it."""
        log = COMBINER.progress
        own = pool.ran, pool.ledger.counters.failed_ops.taken, pool.heap[:1]
        # Planning may go on for others while what is ready here stays; and the other way round.
        is_stuck = own == self.own and (log == self.log or not COMBINER.unplanned)
        is_left = bool(pool.heap) and own == self.own
        self.log, self.own = log, own
        self.unchanged = self.unchanged + 1 if is_stuck or is_left else 0
        return not self.unchanged


def stand_in(pool: WorkerPool) -> None:
    """Do what a thread that is suspended, or was interrupted, may have left undone for a pool."""
    owner = pool.owner()
    if owner is not None:
        nodes.tell_for_others(owner)
        ask(owner)
        del owner
    settle()
    if pool.heap or COMBINER.unplanned:
        pool.rescue()


def ask(engine: Engine) -> None:
    """Ask the driver about each device op whose end somebody counts on."""
    for op in list(engine._registered):
        if op.__class__ is DeviceOp and op._is_watched:
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
    """True if nothing is left to do for `op` but by the driver, and nobody counts on its end."""
    return op.__class__ is DeviceOp and op._point is not None and not op._is_watched


WATCHDOG = Watchdog()
