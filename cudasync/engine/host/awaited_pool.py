"""Floor 2. A worker pool whose waiting thread runs the awaited op, if no worker has begun it.

Two thread switches cost more than a short exchange with another process. So if a push is expected
to be waited for soon, its ring is delayed, and the waiting thread runs the ready ops. A push is
expected to be so if the last push at its place was. Soon is less than `SOON_S` after the first push
since the last wait, so little that could overlap is lost.

Invariants:
- an op is claimed before it runs, as in a worker, so one thread runs it;
- after a delayed ring, the next wait of any thread runs the op or rings; so does the next push at
  another place or after `SOON_S`; else the watchdog rings, some 20 ms later;
- Ctrl-C in an op that can go on returns the op, and the worker continues it.
"""

from __future__ import annotations

import time
from contextlib import suppress
from threading import get_ident
from typing import TYPE_CHECKING, Any

from cudasync.engine import general_push
from cudasync.engine.device.ready import settle
from cudasync.engine.host.pool import Regional, WorkerPool
from cudasync.engine.host.watchdog import WATCHDOG
from cudasync.engine.ledger import poison
from cudasync.engine.lifecycle import refusal
from cudasync.engine.log import node as nodes
from cudasync.engine.log.combiner import COMBINER
from cudasync.engine.op import OpKind, WaiterToken, claim, claimant, is_claimed_by
from cudasync.engine.op_classes import DataFence

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from types import CodeType

    from cudasync.engine.engine import Engine
    from cudasync.engine.op import Op

# The most remembered places of pushes.
MOST_PLACES = 256
# With more unplanned entries than this, a worker plans them.
FEW = 16
# Longer than a few pushes take, and too short for anything that is worth overlapping.
SOON_S = 0.0003
# The system makes 95 us of a nap (median of 2,000).
NAP_S, MOST_NAPS = 20e-6, 3
# Pools with pushes since the last wait of any thread, and the time of the first of these pushes.
FRESH: dict[AwaitedPool, float] = {}


class AwaitedPool(WorkerPool):
    """A pool of one worker; its ops push nothing, and their writes keep them in order."""

    # True while the calling thread is about to look at the pool itself: the next ring is delayed.
    is_looked_after = False

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.regional = _Awaited(self)
        # The places whose last push was run by a waiter that came soon.
        self.places: dict[tuple[CodeType, int], None] = {}
        # The number of its ops that waiters have run.
        self.ran_by_waiters = 0

    def ring(self) -> None:
        if self.is_looked_after:
            self.is_looked_after = False
            self.is_put_off = True
            if not self.is_watched:
                WATCHDOG.watch(self)
            return
        if self.is_put_off:
            # No thread waited soon for the delayed op: the next ring is not delayed.
            self.is_put_off = False
            self.places.clear()
        super().ring()


class _Awaited(Regional):
    """The place of the pool's ops."""

    def __init__(self, pool: AwaitedPool) -> None:
        super().__init__(pool)
        self.pool = pool


def push(
    engine: Engine,
    fn: Callable[[], Any],
    pool: str,
    reads: Sequence[Any] = (),
    writes: Sequence[Any] = (),
    name: str = "awaited",
    priority: int = 0,
) -> Op:
    """`engine.push` to a pool that `with_pool` made of this kind, without other libraries' arrays.

    If `fn.can_go_on` is true after Ctrl-C interrupted `fn`, the worker calls `fn` again.
    """
    place = engine._pools[pool]
    if not isinstance(place, AwaitedPool):
        # On a serial engine.
        return engine.push(fn, reads, writes, name, priority, pool=pool)
    site = general_push.push_site()
    try:
        is_known = (site.f_code, site.f_lasti) in place.places and place.ledger.recorder is None
        is_delayed = _is_soon(FRESH.setdefault(place, time.monotonic())) and is_known
        place.is_looked_after = is_delayed
        op = general_push.push(
            engine, fn, OpKind.HOST, reads, writes, name, priority, None, place, site=site
        )
    finally:
        place.is_looked_after = False
    # A wait of another thread may have come between note and push: it has seen no delayed ring.
    if place.is_put_off and not (is_delayed and place in FRESH):
        place.ring()
    return op


def run_awaited(op: Op, *, may_run: bool) -> bool:
    """The calling thread waits for `op`. If `may_run`, run `op` and its predecessors here, if they
    are of such pools and not begun. True if `op` is over.

    Delayed rings for ops that are not run here are given now.
    """
    fresh: dict[AwaitedPool, float] = {}
    # One by one: a push that finds its pool here leaves the ring to a wait that takes the pool.
    with suppress(KeyError):
        for _ in range(len(FRESH)):
            pool, since = FRESH.popitem()
            fresh[pool] = since
    try:
        if may_run and COMBINER.unplanned <= FEW:
            _run_here(op, fresh)
    finally:
        # Also after Ctrl-C.
        _give_delayed_rings(fresh)
    return op.finished


def _run_here(op: Op, fresh: dict[AwaitedPool, float]) -> None:
    """Run `op`, or the ops that a fence waits for, if they are of such pools."""
    awaited: Sequence[Op] = (op,)
    if isinstance(op, DataFence):
        _plan(op, list(fresh))
        gate = None if op._node is None else op._node.gate
        awaited = () if gate is None else gate.before
    for each in awaited:
        if (own := _pool_of(each)) is not None:
            _run_up_to(each, own, is_soon=_is_soon(fresh.get(own)))


def _give_delayed_rings(pools: Iterable[AwaitedPool]) -> None:
    for pool in pools:
        if pool.is_put_off:
            pool.ring()


def _plan(op: Op, pools: list[AwaitedPool]) -> None:
    """Plan the log up to `op`, without a ring for ready ops of these pools."""
    for pool in pools:
        pool.is_looked_after = True
    COMBINER.plan(op)
    settle()
    for pool in pools:
        pool.is_looked_after = False


def _pool_of(op: Op) -> AwaitedPool | None:
    """The `AwaitedPool` of an op; None for an op of another pool."""
    place: Any = op._pool
    if place.__class__ is _Awaited:
        place = place.pool
    return place if place.__class__ is AwaitedPool else None


def _run_up_to(op: Op, pool: AwaitedPool, *, is_soon: bool) -> None:
    """Run `op` and earlier ops of its pool, until `op` is over or nothing is ready.

    `is_soon`: the thread waits so soon that the next pushes at their places may be delayed.
    """
    if pool.ledger.recorder is not None:
        return
    if not is_soon:
        pool.places.clear()
    while not op.finished:
        _plan(op, [pool])
        if pool.heap:
            # Before an op is taken: Ctrl-C may come, and a taken op would be lost.
            _give_way(op._engine, pool)
        ready = pool.take()
        if ready is None:
            pool.places.pop((op._code, op._at), None)
            return
        pool.is_put_off = False
        place = ready._code, ready._at
        _run(ready, pool)
        if is_soon:
            if len(pool.places) >= MOST_PLACES:
                pool.places.clear()
            pool.places[place] = None
    if pool.is_put_off:
        pool.ring()


def _give_way(engine: Engine, pool: AwaitedPool) -> None:
    """Nap until the workers of other pools that were rung for are awake, or for a moment.

    The next op may use a processor for long. If all processors are in such ops, a system lets a
    woken thread wait for some milliseconds.
    """
    for each in list(engine._pools.values()):
        if each is not pool and not each.is_silent():
            for _ in range(MOST_NAPS):
                time.sleep(NAP_S)
                if each.is_silent():
                    break


def _is_soon(since: float | None) -> bool:
    """Whether the first push since the last wait is so recent; False if there was none."""
    return since is not None and time.monotonic() - since < SOON_S


@claimant
def _run(op: Op, pool: AwaitedPool) -> None:
    """Run a planned op like a worker, unless another thread has claimed it."""
    token = WaiterToken(get_ident())
    fn: Any = None
    try:
        fn = claim(op, token)
        if fn is None:
            return
        sources = nodes.gate_of(op).sources
        failure = poison(op, sources) if sources else None
        if failure is None and op._engine._is_dropped:
            failure = refusal.dropped(op)
    except BaseException:
        # Ctrl-C before it began: the worker takes it.
        if is_claimed_by(op, token):
            op._fn, op._claims = fn or op._fn, []
            pool.put(op)
        raise
    ledger = pool.ledger
    if failure is not None:
        op.failure = failure
        op._engine._failures.note(failure, op)
        ledger.counters.failed_ops.next()
    else:
        try:
            op._result = fn()
            pool.ran_by_waiters += 1
            pool.ran_by_pushers.next()
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt) and getattr(fn, "can_go_on", False):
                op._fn, op._claims = fn, []
                pool.put(op)
                raise
            ledger.fail(op, error)
            ledger.counters.failed_ops.next()
            if not isinstance(error, Exception):
                nodes.finish(op)
                raise
    # The calling thread looks at the pool again: the end of `op` need not ring for what it frees.
    pool.is_looked_after = True
    nodes.finish(op)
    pool.is_looked_after = False
    if ledger.held:
        ledger.ended()
    settle()
