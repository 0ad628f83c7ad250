"""Floor 2. A worker runs an op of another pool of its engine, without a hand-over between threads.

A pool limits how many of its ops run at once. Its threads are not tied to it, as those of oneTBB's
task arenas: a worker that meets a ready op of another pool, where it may take a permit, runs the op
itself. Two thread switches cost ten times as much as a short op.

True throughout a visit:
- the worker holds a permit of the op's pool, and none of its own pool;
- its own slot is lent, so another thread may take its place;
- another worker of its own pool watches: it takes over when the visit is long.

A pool of one worker takes no part: all of its ops run on one thread, unless one of them waits
inside. Nor do pools with priorities, limits or a recorder take part.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cudasync.engine.host.states import ASLEEP, AWAY, SEARCHING, WATCHING, WORKING
from cudasync.engine.host.watchdog import WATCHDOG
from cudasync.engine.log import node as nodes
from cudasync.engine.op import claim

if TYPE_CHECKING:
    from cudasync.engine.host.pool import WorkerPool
    from cudasync.engine.host.worker import Worker
    from cudasync.engine.op import Op


# The living workers, by the idents of their threads.
WORKERS: dict[int, Worker] = {}


def host_of(op: Op, home: WorkerPool) -> WorkerPool | None:
    """The pool that a worker of `home` would visit for `op`; None if it may not."""
    place: Any = op._pool
    # A pool of the engine, or the place of its ops on byte ranges.
    pool: WorkerPool | None = getattr(place, "pool", place)
    if pool is home or pool is None or not are_open(home, pool) or pool.heap:
        return None
    return pool


def are_open(home: WorkerPool, host: WorkerPool) -> bool:
    """True if workers of `home` may visit `host`: both are pools of one engine that take part."""
    return (
        getattr(host, "is_open", False)
        and home.is_open
        and home.ledger is host.ledger
        and home.is_plain
        and host.is_plain
        and home.ledger.recorder is None
        # Long ops are handed over: their threads have long waits to overlap.
        and not (home.spread or host.spread)
    )


def is_planned_by(owner: int, home: WorkerPool) -> bool:
    """True if the thread `owner` is an awake worker of a pool whose workers may visit `home`: then
    it also runs what it plans for `home`, and need not be superseded while it makes progress."""
    worker = WORKERS.get(owner)
    if worker is None or worker.pool is home or not are_open(worker.pool, home):
        return False
    return worker.pool.states.rows.get(worker) in (WORKING, SEARCHING, AWAY)


def go(worker: Worker, host: WorkerPool) -> bool:
    """Leave the worker's own pool for an op of `host`; False if it may not, now."""
    home = worker.pool
    states = home.states
    # As `States.enter`. No push may rely on this worker while it is away.
    states.searching.pop(worker, None)
    states.rows[worker] = AWAY
    # Only now: a worker that watches answers for what was pushed before.
    found = list(states.rows.values())
    if (WATCHING in found or ASLEEP in found) and not worker.successors:
        worker.host = host
        if host.permits.take(worker):
            home.slots.lend()
            if WATCHING not in found:
                # As in `WorkerPool.blocked`.
                states.uncover()
                home.look_again()
            if home.permits.give_back(worker):
                home.ring()
            return True
        if host.permits.give_back(worker):
            host.ring()
        worker.host = None
    states.rows[worker] = WORKING
    return False


def run_clear(worker: Worker, op: Op, epoch: int, index: int) -> bool:
    """Run an op without a plan, the entry at `index`, for the pool that the worker visits; False if
    another thread has claimed the op. As in `draining.drain`."""
    host = worker.host
    assert host is not None
    fn = claim(op, worker.token)
    if fn is None:
        return False
    worker.op = op
    try:
        op._result = fn()
    except BaseException as error:
        worker.failed(op, error, epoch)
    else:
        host.visits.next()
    # Before its end: then the counts are true for a thread that waits for the op.
    worker.skip(index)
    worker.is_ending = True
    nodes.finish(op)
    worker.is_ending = False
    # The frame of an exception must keep no engine.
    del fn, op
    return True


def come_back(worker: Worker) -> bool:
    """The visit is over; False if another thread has the worker's place in its own pool."""
    host, home = worker.host, worker.pool
    assert host is not None
    if host.permits.give_back(worker):
        host.ring()
    worker.host = None
    home.states.enter(worker, WORKING)
    is_back = home.permits.take(worker)
    if not home.slots.take_back():
        home.wake_surplus()
    return is_back


def will_visit(worker: Worker, host: WorkerPool) -> bool:
    """An op of `host` is ready, and `worker` is about to look for work: True if it looks there."""
    if worker.next_pool is not None or not worker.is_ending or not are_open(worker.pool, host):
        return False
    if not host.is_watched:
        # First, so that the watchdog acts if this thread comes no further.
        WATCHDOG.watch(host)
    worker.next_pool = host
    return True


def visit(worker: Worker) -> bool:
    """Run the op that became ready in another pool, or ring there; False if the worker has lost
    its place in its own pool."""
    host, worker.next_pool = worker.next_pool, None
    assert host is not None
    if worker.pool.heap or not go(worker, host):
        host.ring()
        return True
    op = host.take()
    if op is not None:
        if host.heap:
            host.ring()
        worker.run(op)
        # As in `drain`.
        del op
    return come_back(worker)
