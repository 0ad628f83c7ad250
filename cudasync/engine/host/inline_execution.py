"""Floor 2. Short host ops of the library, which the pushing thread runs.

Waking a worker costs many times as much as such an op. So if nothing blocks the op, its push
becomes the combiner and runs it, like a draining worker: see `host.drain_loop`. Else the op is left
to the workers.

Invariants:
- the function belongs to the library and is short: it waits for nothing and pushes nothing. (A
  finaliser during it may push; then its planner takes over, and the claim decides who runs the op);
- until the claim only the log has changed;
- a failed op stays in the log, over, for the next combiner to enter: readers of its data are
  planned after it.
"""

from __future__ import annotations

from threading import get_ident
from typing import TYPE_CHECKING, Any

from cudasync.atomic import DONE
from cudasync.engine import current
from cudasync.engine.device.ready import settle
from cudasync.engine.lifecycle import refusal
from cudasync.engine.log import node as nodes
from cudasync.engine.log.combiner import COMBINER, SEGMENT
from cudasync.engine.log.passing import index_of
from cudasync.engine.op import claimant, is_claimed_by
from cudasync.engine.op_classes import ShortOp

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from cudasync.engine.engine import Engine
    from cudasync.engine.log.epoch import Epoch
    from cudasync.engine.op import Op, Regions

# A result of so few elements takes less time than waking a worker.
MOST_ELEMENTS = 1024
# With more unplanned entries than this, a worker is about to drain the log.
FEW = 4

_LOG = COMBINER.log
is_clear = COMBINER.is_clear
_maybe_inside = current.maybe_inside


@claimant
def push(
    engine: Engine, fn: Callable[[], Any], regions: Regions, name: str, frame: FrameType
) -> ShortOp:
    """Push a host op, at `frame`, onto a direct engine; run it if nothing blocks it."""
    op = ShortOp()
    op.finished = False
    op.failure = None
    op.number = 0
    op.name = name
    op._engine = engine
    op._fn = fn
    op._claims = []
    op._reads = op._writes = ()
    pool: Any = engine._compute
    op._pool = pool.regional
    op._regions = regions
    op._node = None
    op._code = frame.f_code
    op._at = frame.f_lasti
    token = get_ident()
    try:
        # `Log.append` and `Combiner.reach`, inlined for the thread that was the combiner last.
        segment = _LOG.tail
        segment.append(op)
        if segment.is_sealed:
            _LOG.append_again(segment, op)
        # Behind the append: a wait for all that misses this number has its fence behind the op.
        if _maybe_inside() is not None:
            engine._nested.next()
        mine: Epoch | None = COMBINER.epoch
        index: int = mine.done  # type: ignore[union-attr, assignment]
        entries = segment.entries
        if (
            mine.segment is not segment  # type: ignore[union-attr]
            or mine.owner != token  # type: ignore[union-attr]
            or mine.started >= index  # type: ignore[union-attr]
            or index >= len(entries)
            or entries[index] is not op
        ):
            mine = None
            if COMBINER.unplanned <= FEW or index_of(op, COMBINER.epoch) >= 0:
                mine, index = COMBINER.reach(op)
        is_run = mine is not None and not engine._sealed_at and run_at(op, mine, index, token)
        # They refer to all later epochs and segments.
        del mine, segment, entries
    except BaseException as error:
        # Ctrl-C may have come before the claim was stored in a local: the cell has it.
        if is_claimed_by(op, token):
            if not op.finished:
                fail(op, error)
        else:
            pool.ring()
        raise
    if is_run:
        pool.ran_by_pushers.next()
    elif not op.finished and not pool.searching and pool.is_silent():
        pool.ring()
    if engine._is_closed:
        refusal.raise_if_refused(op)
    return op


def run_at(
    op: Op, mine: Epoch, index: int, token: object, call: Callable[[Any], object] | None = None
) -> bool:
    """Run `op`, which `Combiner.reach` found at `index`; False if it is blocked, failed, or another
    thread has it.

    With `call`, `call(fn)` calls its function.
    """
    entries = mine.segment.entries
    done: int = mine.done  # type: ignore[assignment]
    mine.started = index
    # The second condition: a signal handler or finaliser pushed meanwhile, on this thread.
    if mine.is_over or mine.done != done or done > index:
        return False
    fn = None
    if is_clear(op, mine.histories_of):
        # `claim`, inlined.
        claims = op._claims
        claims.append(token)
        if claims[0] is token:
            fn, op._fn = op._fn, None
    if fn is None:
        # Nothing has changed: the entry can be begun anew.
        mine.started = done - 1
        return False
    op.number = mine.segment.base + index
    try:
        op._result = fn() if call is None else call(fn)
    except Exception as error:
        mine.started = done - 1
        fail(op, error)
        # Its traceback refers to this frame, which must not keep later epochs and segments.
        del mine, entries
        return False
    op.finished = True
    if op._node is not None:
        nodes.finish(op)
        settle()
    if not mine.is_over:
        entries[index] = DONE
    if index > done:
        # Plain ops before it stay unplanned.
        mine.started = done - 1
        return True
    mine.done = index + 1
    if index + 1 >= SEGMENT and not mine.segment.is_sealed:
        mine.segment.seal()
    return True


def fail(op: Op, error: BaseException) -> None:
    """End `op` with the exception that its function raised, or that interrupted the function."""
    ledger = op._engine._ledger
    ledger.fail(op, error)
    ledger.counters.failed_ops.next()
    nodes.finish(op)
    settle()
