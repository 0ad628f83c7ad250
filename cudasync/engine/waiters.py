"""Floor 2. Waiting for ops: a waiter sleeps until it is woken, and ensures progress.

A waiter sleeps at growing intervals. If nothing was planned during one, it plans the log itself,
issues ready ops, and asks the driver: the responsible thread may be in a long op, or suspended.
"""

from __future__ import annotations

import time
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Any

from cudasync.atomic import Bell
from cudasync.engine import current
from cudasync.engine.device.ready import settle
from cudasync.engine.host import run_by_waiter
from cudasync.engine.host.awaited_pool import FRESH, run_awaited
from cudasync.engine.host.watchdog import stand_in
from cudasync.engine.last_on_streams import last_on_streams
from cudasync.engine.lifecycle import fork_and_exit, interrupts, left_ops
from cudasync.engine.log import epoch as epochs
from cudasync.engine.log import node as nodes
from cudasync.engine.log.combiner import COMBINER
from cudasync.engine.op_classes import DataFence, Fence, FullOp, PlainOp
from cudasync.engine.replay.tape import LOCAL
from cudasync.errors import DeadlockError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cudasync.engine.engine import Engine
    from cudasync.engine.op import Op
    from cudasync.engine.op_classes import DeviceOp

# With so few entries in the log a waiter plans them faster than a worker would.
FEW = 16
# After so long without planning, the planner may be suspended.
PATIENCE_S = 1e-3
# A waiter plans so many entries before it naps again: workers need the GIL as well.
PIECE = 64
# A waiter without a deadline polls for so long before it wakes a thread that waits in the driver.
SOON_S = 50e-6
FIRST_NAP_S = 200e-6
# While entries are unplanned, and when all are planned.
LONGEST_NAP_S = 10e-3
LONGEST_SLEEP_S = 0.25


def wait_for(op: Op, deadline: float | None, *, caller_raises: bool = True) -> bool:
    """Block until `op` is over; False if `deadline` (time.monotonic) has passed first.

    The caller raises the failure of `op`; with `caller_raises=False` this wait tells nobody of it.
    Raises DeadlockError if an op's function waits for an op that can only end after its own op.
    """
    try:
        if FRESH and run_awaited(op, may_run=deadline is None and not current.inside()):
            return True
        inside = current.inside()
        first = None if inside or COMBINER.unplanned > FEW else _first_left(op)
        if first is not None and deadline is None and run_by_waiter.run(first):
            if op.finished:
                return True
            first = None
    except KeyboardInterrupt:
        interrupts.note(op._engine)
        raise
    LOCAL.tape.has_waited = True
    node = nodes.of(op)
    bell = Bell() if caller_raises else nodes.Aside()
    # Before the next look at the op: its ender looks at the sleepers after it has set `finished`.
    node.sleepers.append(bell)
    try:
        # A draining worker needs no plan for an op, or for a fence behind everything: planning here
        # would take longer, and delay the worker too.
        is_left = first is not None and (first is op or op.__class__ is Fence)
        is_short = inside or (COMBINER.unplanned <= FEW and not is_left)
        # A wait with a limit does not wait for a planner.
        if is_short and not (deadline is not None and COMBINER.is_slow):
            COMBINER.plan(op)
            settle()
        # Before a fence the devices were polled: see `Engine._drain`.
        is_polled = op.__class__ is Fence
        if deadline is None and not inside and not is_polled and _ends_soon(op):
            return True
        op._pool.watch(op)
        if not inside and op._engine._serial is None:
            return _sleep(op, bell, deadline)
        worker = current.worker_or_guest() if inside else None
        with (
            _noted(op, inside, deadline) if inside else nullcontext(),
            op._engine._blocking(op),
            nullcontext() if worker is None else worker.pool.blocked(worker),
        ):
            return _sleep(op, bell, deadline)
    except KeyboardInterrupt:
        interrupts.note(op._engine)
        raise
    finally:
        with suppress(ValueError):
            node.sleepers.remove(bell)


def wait_for_first(ops: Sequence[Op]) -> None:
    """Block until one of `ops` is over. They are of one engine, and the caller is an op's function,
    which waits for all of them in the end.

    Raises as `wait_for`, which a serial engine calls for the oldest of them.
    """
    if any(each.finished for each in ops):
        return
    engine = ops[0]._engine
    if len(ops) == 1 or engine._serial is not None:
        wait_for(ops[0], None)
        return
    first, bell = _First(ops), Bell()
    LOCAL.tape.has_waited = True
    sleepers = [nodes.of(each).sleepers for each in ops]
    # As in `wait_for`: before the next look at the ops.
    for each in sleepers:
        each.append(bell)
    try:
        if FRESH:
            run_awaited(ops[0], may_run=False)
        for op in ops:
            COMBINER.plan(op)
        settle()
        for op in ops:
            op._pool.watch(op)
        worker, inside = current.worker_or_guest(), current.inside()
        with ExitStack() as noted:
            for op in ops:
                noted.enter_context(_noted(op, inside, None))
            if worker is not None:
                noted.enter_context(worker.pool.blocked(worker))
            _sleep(first, bell, None)
    except KeyboardInterrupt:
        interrupts.note(engine)
        raise
    finally:
        for each in sleepers:
            with suppress(ValueError):
                each.remove(bell)


class _First:
    """Several ops, as one that is over with the first of them."""

    def __init__(self, ops: Sequence[Op]) -> None:
        self._ops = tuple(ops)
        self._engine = ops[0]._engine
        self._pool = self

    @property
    def finished(self) -> bool:
        return any(each.finished for each in self._ops)

    def query(self, _: object) -> None:
        for each in self._ops:
            each._pool.query(each)


def _first_left(op: Op) -> Op | None:
    """The only host op that is left in the log, if it is `op`, or `op` is a fence right behind."""
    latest = epochs.latest(COMBINER.epoch)
    # In a sealed segment, a SEAL is among these.
    left = latest.segment.entries[latest.done or 0 :]
    first = left[0] if left else None
    if first.__class__ is not PlainOp and first.__class__ is not FullOp:
        return None
    is_next = (first is op and len(left) == 1) or (isinstance(op, DataFence) and left[1:] == [op])
    return first if is_next else None


def _ends_soon(op: Op) -> bool:
    """Poll the devices for a moment: two thread switches cost more than a short op."""
    gate = None if op._node is None else op._node.gate
    poll(last_on_streams((op,) if gate is None else (op, *gate.before)), op)
    return op.finished


def poll(asked: Sequence[DeviceOp], last: Op) -> None:
    """Ask the devices about these ops for a moment, until `last` is over."""
    until = time.perf_counter() + SOON_S
    while asked and not last.finished and time.perf_counter() < until:
        for each in asked:
            each._pool.query(each)


def wait_for_streams(engine: Engine, deadline: float | None) -> None:
    """Wait until the last op on each stream is over, if all planned ops are on streams; or until
    the deadline (time.monotonic)."""
    LOCAL.tape.flush()
    issuer: Any = engine._issuer
    left: Sequence[DeviceOp] = issuer.tails()
    until = time.monotonic() + SOON_S if left else 0.0
    if deadline is not None:
        until = min(until, deadline)
    while left:
        left = issuer.end_reached(left)
        if time.monotonic() >= until:
            break
    for each in left:
        if not each.finished and issuer.has_issued_all(engine):
            # Whoever waits for all raises the first failure, which may be another.
            wait_for(each, deadline, caller_raises=False)


def _sleep(op: Op | _First, bell: Bell, deadline: float | None) -> bool:
    nap = FIRST_NAP_S
    # Not looked at before the first nap: a short op is over by then.
    seen: object = None
    while not op.finished:
        left = nap if deadline is None else min(nap, deadline - time.monotonic())
        if left <= 0:
            return False
        if bell.sleep(left):
            continue
        unplanned = COMBINER.unplanned
        progress = COMBINER.progress, op._engine._ran
        if progress == seen:
            if unplanned and nap >= PATIENCE_S and not COMBINER.is_slow:
                # Not only up to `op`: its function may wait for an op behind it.
                COMBINER.plan(most=PIECE)
                progress = COMBINER.progress, progress[1]
            settle()
            if nap >= LONGEST_NAP_S:
                _stand_in(op)
        seen = progress
        nap = min(2 * nap, LONGEST_NAP_S if unplanned else LONGEST_SLEEP_S)
    return True


def _stand_in(op: Any) -> None:
    """Do the work that a suspended or interrupted thread may have left undone."""
    engine = op._engine
    op._pool.query(op)
    # The awaited op may come after ops of any engine.
    for each_engine in {engine, *fork_and_exit.engines}:
        left_ops.end_left(each_engine)
    settle()
    if engine._serial is None:
        for pool in list(engine._pools.values()):
            stand_in(pool)
        for each in list(engine._registered):
            each._pool.query(each)


# The waits of op functions without a limit: the ops that the waiter is inside, and the awaited op.
_waits: dict[object, tuple[Sequence[Op], Op]] = {}


@contextmanager
def _noted(op: Op, inside: Sequence[Op], deadline: float | None) -> Iterator[None]:
    """Around a wait of an op's function: note the wait, and refuse it if it closes a cycle.

    The wait is noted first: if two ops start to wait for each other, one sees the other's wait.
    """
    key = object()
    if deadline is None:
        _waits[key] = tuple(inside), op
    try:
        _refuse_deadlock(op, inside, is_endless=deadline is None)
        yield
    finally:
        _waits.pop(key, None)


def _refuse_deadlock(op: Op, inside: Sequence[Op], *, is_endless: bool) -> None:
    """Raise DeadlockError if `op` comes after one of `inside`. For an endless wait also through
    waits of functions: a wait with a limit ends by itself, and so ends the cycle."""
    awaited = {op}
    todo = [op]
    while todo:
        each = todo.pop()
        for mine in inside:
            if _comes_after(each, mine):
                through = "" if each is op else f" and waits for op {each.name!r}"
                raise DeadlockError(
                    f"op {mine.name!r} waits for op {op.name!r}{through}, which can only end "
                    f"after this wait"
                )
        for others, target in list(_waits.values()) if is_endless else ():
            if target not in awaited and any(_comes_after(each, other) for other in others):
                awaited.add(target)
                todo.append(target)


def _comes_after(op: Op, other: Op) -> bool:
    """True if `op` is `other`, or comes after it by its plan."""
    found = {op}
    todo = [op]
    while todo:
        each = todo.pop()
        if each is other:
            return not other.finished
        gate = nodes.of(each).gate
        if gate is not None:
            # A predecessor has a smaller number: an op older than `other` is not behind it.
            later = {o for o in gate.before if o.number >= other.number} - found
            found |= later
            todo += later
    return False
