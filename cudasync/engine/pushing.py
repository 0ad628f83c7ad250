"""Floor 2. Pushes that have more to think of than a plain function on variables.

Device ops, byte ranges, priorities, limits, traces, the serial engine, an engine that closes.
"""

from __future__ import annotations

import os
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

from cudasync.atomic import Bell
from cudasync.engine import at_once, current, issue, launching, refusal
from cudasync.engine.op import DeviceOp, FullOp, Op, OpKind
from cudasync.engine.planner import PLANNER
from cudasync.engine.ranges import keep_what_lies_between
from cudasync.engine.variable import resolve

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from cudasync.driver import Device
    from cudasync.engine.engine import Engine

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_LOG = PLANNER.log
# Allocations are over when their push is; frees follow kernels without being any.
_ON_THEIR_OWN = (OpKind.ALLOCATE, OpKind.FREE)


def name_of(fn: object, name: str | None) -> str:
    """The name of an op that is to call `fn`. Raises TypeError if that can not be called."""
    if not callable(fn):
        raise TypeError(f"an op needs a function, not {type(fn).__name__}")
    if name is not None:
        return name
    known = getattr(fn, "__name__", None)
    return known if isinstance(known, str) else type(fn).__name__


def push(
    engine: Engine,
    fn: Callable[..., Any],
    kind: OpKind,
    reads: Any,
    writes: Any,
    name: str,
    priority: int,
    device: Device | None,
    pool: Any,
    *,
    kernel: str = "",
    is_users: bool = False,
) -> Op:
    """Make an op and put it into the log; issue it at once if it is a device op and can be.

    A function of the user's is called with the thread inside of the op; ours push nothing.
    """
    if engine._is_closed:
        raise refusal.closed()
    read_variables, read_regions = resolve(reads, "reads")
    written_variables, written_regions = resolve(writes, "writes")
    regions = keep_what_lies_between(tuple(read_regions), (), tuple(written_regions))
    if device is None:
        op = FullOp()
    elif engine._is_direct and not priority and kind not in _ON_THEIR_OWN:
        return launching.push(
            engine,
            fn if is_users else partial(launching.recorded, fn),
            (regions, tuple(read_variables), tuple(written_variables)),
            name,
            device,
            _push_site(),
            kernel,
            None,
            kind,
            is_users,
        )
    else:
        op = DeviceOp()
        op.kind = kind
        op._before = None
        op._device = device
        op._kernel = kernel
        op._point = None
        op._outcome = []
        pool = engine._issuer
        if kind is OpKind.ALLOCATE:
            op._is_owned = True
        if is_users and engine._serial is None:
            # The serial engine knows what it runs.
            fn = partial(current.call, op, fn)
    op.finished = False
    op.failure = None
    op.number = 0
    if priority:
        op.priority = priority
    op.name = name
    op._engine = engine
    op._fn = fn
    op._reads = tuple(read_variables)
    op._writes = tuple(written_variables)
    op._pool = pool
    if read_regions or written_regions:
        op._regions = regions
        if device is None and engine._serial is None:
            op._pool = pool.regional
    elif device is not None:
        op._regions = None
    op._record = None
    frame = _push_site()
    op._code, op._at = frame.f_code, frame.f_lasti
    _submit(engine, op, pool)
    # Only now: whoever sees that a write was counted comes after it.
    for variable in written_variables:
        variable._note_write()
    return op


def _submit(engine: Engine, op: Op, pool: Any) -> None:
    """Put `op` into the log and see to it that it is planned."""
    if current.maybe_inside() is not None:
        engine._nested.next()
    # What an op pushes is not held back: the op may be the very one to wait for.
    if engine._max_in_flight is not None and not current.inside():
        _hold_back(engine, engine._max_in_flight)
    if engine._ledger.recorder is not None:
        engine._ledger.recorder.pushed(op)
    if engine._serial is not None:
        if engine._serial.is_inside():
            engine._nested.next()
        engine._serial.submit(op)
    elif isinstance(op, DeviceOp):
        at_once.submit(op)
    else:
        if op.priority and pool.is_plain:
            engine._rank()
        _LOG.append(op)
        if not pool.eyes and pool.is_silent():
            pool.ring()
    if engine._is_closed:
        refusal.raise_if_refused(op)


def _hold_back(engine: Engine, limit: int) -> None:
    """Back-pressure: wait while `limit` ops are unfinished."""
    bell = Bell()
    # Not a serial engine's: there nothing is ever unfinished.
    issuer: Any = engine._issuer
    engine._ledger.held.append(bell)
    try:
        nap = 1e-3
        while True:
            # An engine with a limit runs no op without a record: all that is planned shows.
            PLANNER.plan()
            issue.settle()
            unfinished = list(engine._registered)
            if len(unfinished) < limit:
                return
            unfinished[0]._pool.watch(unfinished[0])
            # The first of them to finish may be any.
            issuer.watch_streams()
            if not bell.sleep(nap):
                nap = min(2 * nap, 0.1)
    finally:
        engine._ledger.held.remove(bell)


def _push_site() -> FrameType:
    """The first caller outside this package."""
    frame = sys._getframe(2)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    return frame
