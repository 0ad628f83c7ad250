"""Floor 2. Short host ops of ours, run by the thread that pushes them.

To wake a worker costs many times what such an op does. So where nothing blocks it, its push becomes
the combiner and runs it, as a worker does that goes through the log: see `host.draining`. Else it
is left to the workers, as any op.

True throughout:
- the function is ours and short: it waits for nothing and pushes nothing (a finaliser in the middle
  of it may; then whoever plans that takes over, and the claim settles who runs the op);
- up to the claim nothing has changed but the log;
- an op that failed is left in the log, over, for the next combiner to enter: whoever reads what it
  wrote is planned behind it.
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
from cudasync.engine.op import is_claimed_by
from cudasync.engine.op_classes import ShortOp

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from cudasync.engine.engine import Engine
    from cudasync.engine.log.epoch import Epoch
    from cudasync.engine.op import Regions

# So few elements of a result take less time than to wake a worker.
MOST_ELEMENTS = 1024
# With more in the log than this, a worker is about to go through it.
FEW = 4

_LOG = COMBINER.log
is_clear = COMBINER.is_clear
_maybe_inside = current.maybe_inside


def push(
    engine: Engine, fn: Callable[[], Any], regions: Regions, name: str, frame: FrameType
) -> ShortOp:
    """Push a host op onto a direct engine, `frame` being where; run it if nothing blocks it."""
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
    if _maybe_inside() is not None:
        engine._nested.next()
    token = get_ident()
    try:
        # `Log.append` and `Combiner.reach`, written out for who was the combiner last.
        segment = _LOG.tail
        segment.append(op)
        if segment.is_sealed:
            _LOG.append_again(segment, op)
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
            mine = COMBINER.reach(op) if COMBINER.unplanned <= FEW else None
        is_run = mine is not None and not engine._sealed_at and _run(op, mine, token)
        # It refers to what comes after it.
        del mine, segment, entries
    except BaseException as error:
        # Ctrl-C may have come before the claim was noted: the cell knows.
        if is_claimed_by(op, token):
            if not op.finished:
                _fail(op, error)
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


def _run(op: ShortOp, mine: Epoch, token: int) -> bool:
    """Run `op`, the next of the log; False if it is not clear, failed, or another thread has it."""
    index: int = mine.done  # type: ignore[assignment]
    entries = mine.segment.entries
    mine.started = index
    # The second: a signal handler or finaliser pushed meanwhile, on this very thread.
    if mine.is_over or mine.done != index:
        return False
    fn = None
    if is_clear(op, mine.histories_of):
        # `claim`, written out.
        claims = op._claims
        claims.append(token)
        if claims[0] is token:
            fn, op._fn = op._fn, None
    if fn is None:
        # Nothing has changed: it can be begun anew.
        mine.started = index - 1
        return False
    op.number = mine.segment.base + index
    try:
        op._result = fn()
    except Exception as error:
        mine.started = index - 1
        _fail(op, error)
        # Its traceback refers to this frame, which must not keep what comes after it.
        del mine, entries
        return False
    op.finished = True
    if op._node is not None:
        nodes.finish(op)
        settle()
    if not mine.is_over:
        entries[index] = DONE
    mine.done = index + 1
    if index + 1 >= SEGMENT and not mine.segment.is_sealed:
        mine.segment.seal()
    return True


def _fail(op: ShortOp, error: BaseException) -> None:
    """End `op` with what its function raised, or what came in the middle of it."""
    ledger = op._engine._ledger
    ledger.fail(op, error)
    ledger.counters.failed_ops.next()
    nodes.finish(op)
    settle()
