"""Floor 2. The thread that waits for a short op runs it, if no worker has begun it.

Two thread switches cost as much as thousands of empty functions. So a thread that waits for the
only op in the log becomes the combiner and runs the op, like a draining worker. Its push rang for a
worker as every push does: so ops that nobody waits for run as before. The woken worker finds the op
claimed, and nothing else: it sleeps again (`Combiner.is_left_to_a_waiter`).

Invariants:
- the waiting thread runs no op but the one that it waits for, or that its fence waits for. So no op
  is buried under another op, and the wait ends with the op;
- the op is one that is pushed repeatedly, and took a short time at its last run, on whichever
  thread. So Ctrl-C, which comes behind the op, comes at once for a user;
- during the op the thread holds a permit of the pool. While the op waits inside, it does not;
- the op's function sees the context of a new thread, not the waiter's: neither its NumPy error
  state nor its engine;
- pools of one worker take no part, because their ops rely on one thread. Nor do pools with
  priorities, limits or a recorder.
"""

from __future__ import annotations

import sys
from contextvars import Context
from functools import partial
from typing import TYPE_CHECKING, Any

from cudasync.engine import current
from cudasync.engine.host import inline_execution
from cudasync.engine.host.worker import Worker
from cudasync.engine.lifecycle.deferred_interrupt import uninterrupted
from cudasync.engine.log.combiner import COMBINER
from cudasync.engine.op import WaiterToken, claimant, is_claimed_by

if TYPE_CHECKING:
    from collections.abc import Callable

    from cudasync.engine.host.pool import WorkerPool
    from cudasync.engine.op import Op

# An op is short if its last run took less. Ctrl-C comes at most so much later.
SHORT_S = 20e-3


def run(op: Op) -> bool:
    """Run `op`, the first unplanned entry of the log, if the calling thread, which waits for it
    outside of ops and without a limit, may run it and is the first. True if `op` is over.

    Raises KeyboardInterrupt if Ctrl-C came meanwhile.
    """
    resolved = op._resolved
    if resolved is None or not resolved.is_short:
        return False
    place: Any = op._pool
    pool: WorkerPool = getattr(place, "pool", place)
    if not pool.is_open or not pool.is_plain or pool.ledger.recorder is not None:
        return False
    if _is_in_a_loop() or op._engine._sealed_at:
        return False
    uninterrupted(partial(_run, op, pool))
    return op.finished


def _is_in_a_loop() -> bool:
    """True in a coroutine: a function that starts a loop of its own would be refused."""
    events: Any = sys.modules.get("asyncio.events")
    return events is not None and events._get_running_loop() is not None


@claimant
def _run(op: Op, pool: WorkerPool) -> None:
    guest = Worker(pool)
    token = WaiterToken(guest.ident)
    # For `WorkerPool.rescue`: it holds a permit of a pool that is not its own.
    guest.host = pool
    mine = None
    try:
        if pool.permits.take(guest):
            mine, index = COMBINER.reach(op)
            if mine is not None:
                inline_execution.run_at(op, mine, index, token, partial(_call, guest, op, pool))
    except BaseException as error:
        # Ctrl-C may have come before the claim was stored in a local: the cell has it. Without a
        # claim, the op is left to the worker that its push rang for.
        if is_claimed_by(op, token) and not op.finished:
            inline_execution.fail(op, error)
        if isinstance(error, KeyboardInterrupt) or not op.finished:
            raise
    finally:
        # The epoch refers to all later ones.
        del mine
        if pool.permits.give_back(guest):
            pool.ring()


def _call(guest: Worker, op: Op, pool: WorkerPool, fn: Callable[[], object]) -> object:
    guest.op = op
    result = Context().run(current.call_as_guest, guest, op, fn)
    # Before the end of the op: then the count is true for a thread that waits for it.
    pool.ran_by_pushers.next()
    return result
