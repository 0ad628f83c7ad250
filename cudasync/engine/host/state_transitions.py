"""Floor 2. The transitions between worker states: a worker falls asleep and wakes.

An idle worker sleeps until it is rung for. While other workers are awake, one idle worker watches
instead: it naps at growing intervals, and joins when planning stalls.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from cudasync.atomic import meet
from cudasync.engine.host.states import ASLEEP, AWAY, SEARCHING, WATCHING, WORKING
from cudasync.engine.host.watchdog import WATCHDOG
from cudasync.engine.log import node as nodes
from cudasync.engine.log.combiner import COMBINER, LONG_S

if TYPE_CHECKING:
    from cudasync.engine.host.pool import WorkerPool
    from cudasync.engine.host.worker import Worker

FIRST_NAP_S = 200e-6
LONGEST_NAP_S = 10e-3
# After a long op, workers share ready ops until so many short ops in a row.
SPREAD = 32


def wake(worker: Worker) -> None:
    """Enter WORKING before the worker starts to work."""
    pool = worker.pool
    pool.states.enter(worker, WORKING)
    # Only now: the watchdog takes its mark off first, and looks at the table afterwards.
    if not pool.is_watched:
        WATCHDOG.watch(pool)
    pool.states.uncover()
    pool.take_ring()
    # Earlier pushes relied on a ring that is taken now, or on workers that left `searching`.
    COMBINER.log.meet()
    meet(pool.heap)
    attend(worker)


def attend(worker: Worker) -> None:
    """Decide whether pushes rely on this awake worker, which a long op may occupy.

    They may while another worker watches, or no worker is left to come.
    """
    pool = worker.pool
    rows = pool.states.rows
    while True:
        states = pool.states.now()
        is_covered = WATCHING in states or not (ASLEEP in states or pool.slots.vacant)
        state = SEARCHING if is_covered else WORKING
        if rows.get(worker) is state and (worker in pool.searching) == is_covered:
            return
        pool.states.enter(worker, state)
        if state is WORKING:
            return
        # Then look again: the watching worker may be at work by now.


def leave(worker: Worker) -> None:
    """The worker is about to end."""
    pool = worker.pool
    pool.states.leave(worker)
    pool.states.uncover()
    pool.take_ring()
    # Pushes meanwhile may have relied on this worker.
    pool.look_again()


def rest(worker: Worker) -> bool:
    """Sleep until there is something to do; True if the worker is to end."""
    pool = worker.pool
    enter = pool.states.enter
    nap = FIRST_NAP_S
    # The place of planning and the time at the start of a nap: only a watching worker uses them.
    seen, since = 0, 0.0
    # Not awake from here on: two workers that fall asleep need not watch each other.
    state = ASLEEP
    enter(worker, state)
    while True:
        while True:
            states = pool.states.now()
            is_any_awake = SEARCHING in states or WORKING in states or AWAY in states
            is_watched = states.count(WATCHING) > (state is WATCHING)
            wanted = WATCHING if is_any_awake and not is_watched else ASLEEP
            if state is wanted:
                break
            state = wanted
            enter(worker, state)
            # Then look again: a worker that wakes meanwhile may rely on this one to watch.
        # Only now: earlier pushes are seen here, and later pushes do not rely on this worker.
        COMBINER.log.meet()
        meet(pool.heap)
        has_work, is_slow = bool(pool.heap), False
        if (
            not has_work
            and not is_any_awake
            and COMBINER.unplanned > 0
            and not COMBINER.is_left_to_a_waiter
        ):
            # Then a thread that is no worker plans: it may stop behind that entry.
            is_slow = COMBINER.is_slow
            has_work = not is_slow
        if has_work and pool.permits.are_left():
            return False
        if worker.is_over():
            return True
        watches = state is WATCHING
        if watches:
            seen, since = COMBINER.place, time.monotonic()
        if pool.bell.sleep(nap if watches or is_slow else None):
            if (pool.heap or (pool.spread and COMBINER.unplanned)) and pool.permits.are_left():
                return False
            nap = FIRST_NAP_S
        elif watches and _is_to_join(pool, seen, since, nap) and pool.permits.are_left():
            return False
        else:
            nap = min(2 * nap, LONGEST_NAP_S)


def _is_to_join(pool: WorkerPool, seen: int, since: float, nap: float) -> bool:
    """After a nap: True if planning is too slow with one thread."""
    place, now = COMBINER.place, time.monotonic()
    if now - since < LONG_S * (place - seen):
        return False
    if place == seen:
        _tell_for_others(pool)
    # A late wake-up means a wait for the GIL: then a second thread does not help its holder.
    is_free = now - since < 2 * nap + LONG_S
    if not COMBINER.unplanned or not (is_free or place == seen) or COMBINER.is_slow:
        return False
    if is_free:
        pool.spread = SPREAD
    return True


def _tell_for_others(pool: WorkerPool) -> None:
    owner = pool.owner()
    if owner is not None:
        nodes.tell_for_others(owner)
