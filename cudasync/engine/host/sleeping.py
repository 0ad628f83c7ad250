"""Floor 2. How a worker falls asleep and wakes: the transitions between its states.

A worker that nobody needs sleeps until it is rung for. While others are awake one of those that
are idle watches instead: it naps at growing intervals, and joins when planning does not go on.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from cudasync.atomic import meet
from cudasync.engine.host.states import ASLEEP, SEARCHING, WATCHING, WORKING
from cudasync.engine.host.watchdog import WATCHDOG
from cudasync.engine.log import node as nodes
from cudasync.engine.log.combiner import COMBINER, LONG_S

if TYPE_CHECKING:
    from cudasync.engine.host.pool import WorkerPool
    from cudasync.engine.host.worker import Worker

FIRST_NAP_S = 200e-6
LONGEST_NAP_S = 10e-3
# After a long op, so many short ops in a row, and the workers of a pool do no longer share what is
# ready.
SPREAD = 32


def wake(worker: Worker) -> None:
    """Before the worker goes to work."""
    pool = worker.pool
    pool.states.enter(worker, WORKING)
    # Only now: the watchdog lets go of a pool, and looks at the table then.
    if not pool.is_watched:
        WATCHDOG.watch(pool)
    pool.states.uncover()
    attend(worker)


def attend(worker: Worker) -> None:
    """Settle who sees what is pushed while an op keeps the worker, which is awake.

    Pushes may count on it while another one watches, or none is left to come.
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
        # And look again: who watched may be at work by now.


def leave(worker: Worker) -> None:
    """The worker is about to end."""
    pool = worker.pool
    pool.states.leave(worker)
    pool.states.uncover()
    # Who pushed meanwhile may have counted on this worker to look.
    pool.look_again()


def rest(worker: Worker) -> bool:
    """Sleep until there is something to do; True if the worker is to end."""
    pool = worker.pool
    enter = pool.states.enter
    nap = FIRST_NAP_S
    # How far planning was, and when, as a nap began: only who watches asks.
    seen, since = 0, 0.0
    # Not awake from here on: two workers that fall asleep need not watch each other.
    state = ASLEEP
    enter(worker, state)
    while True:
        while True:
            states = pool.states.now()
            is_any_awake = SEARCHING in states or WORKING in states
            is_watched = states.count(WATCHING) > (state is WATCHING)
            wanted = WATCHING if is_any_awake and not is_watched else ASLEEP
            if state is wanted:
                break
            state = wanted
            enter(worker, state)
            # And look again: who wakes meanwhile may count on this one to watch.
        # Only now: what was pushed before is seen here, what comes after does not count on it.
        COMBINER.log.meet()
        meet(pool.heap)
        if pool.heap or (not is_any_awake and COMBINER.unplanned):
            return False
        if worker.is_over():
            return True
        watches = state is WATCHING
        if watches:
            seen, since = COMBINER.place, time.monotonic()
        if pool.bell.sleep(nap if watches else None):
            if pool.heap or (pool.spread and COMBINER.unplanned):
                return False
            nap = FIRST_NAP_S
        elif _is_to_join(pool, seen, since, nap):
            return False
        else:
            nap = min(2 * nap, LONGEST_NAP_S)


def _is_to_join(pool: WorkerPool, seen: int, since: float, nap: float) -> bool:
    """After a nap: True if planning goes on too slowly for one thread."""
    place, now = COMBINER.place, time.monotonic()
    if now - since < LONG_S * (place - seen):
        return False
    if place == seen:
        _tell_for_others(pool)
    # Who wakes late waited for the GIL: what has it gains nothing by a second thread.
    is_free = now - since < 2 * nap + LONG_S
    if not COMBINER.unplanned or not (is_free or place == seen):
        return False
    if is_free:
        pool.spread = SPREAD
    return True


def _tell_for_others(pool: WorkerPool) -> None:
    owner = pool.owner()
    if owner is not None:
        nodes.tell_for_others(owner)
