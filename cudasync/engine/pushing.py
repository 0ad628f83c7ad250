"""Floor 2. Pushes that have more to think of than a plain function on variables.

Device ops, byte ranges, priorities, limits, traces, the serial engine, an engine that closes.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from cudasync.atomic import Bell
from cudasync.engine import current, issue
from cudasync.engine import record as records
from cudasync.engine.failure import Failure
from cudasync.engine.op import DeviceOp, Op, OpKind
from cudasync.engine.planner import PLANNER
from cudasync.engine.variable import resolve
from cudasync.errors import ClosedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from cudasync.driver import Device
    from cudasync.engine.engine import Engine

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_LOG = PLANNER.log


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
    kernel: str,
) -> Op:
    """Make an op and put it into the log; issue it at once if it is a device op and can be."""
    if engine._is_closed:
        raise closed()
    read_variables, read_regions = resolve(reads, "reads")
    written_variables, written_regions = resolve(writes, "writes")
    if device is None:
        op = Op()
    else:
        op = DeviceOp()
        op.kind = kind
        op._device = device
        op._kernel = kernel
        op._point = None
        op._outcome = []
        op._is_watched = False
        pool = engine._issuer
        op._issuer = pool
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
        op._regions = tuple(read_regions), tuple(written_regions)
        if device is None and engine._serial is None:
            op._pool = pool.regional
    op._record = None
    op._code, op._at = _push_site()
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
        _submit_device_op(op)
    else:
        if op.priority and pool.is_plain:
            engine._rank()
        _LOG.append(op)
        if not pool.eyes and pool.is_silent():
            pool.ring()
    if engine._is_closed:
        raise_if_refused(op)


def _submit_device_op(op: DeviceOp) -> None:
    if op.kind is OpKind.ALLOCATE:
        op._is_owned = True
    try:
        _LOG.append(op)
        PLANNER.plan(op)
        if op._is_owned and not op.finished:
            # Nothing blocks it, and nobody else is to be in the middle of it when this returns.
            op._issuer.issue(op)
        issue.settle()
    except BaseException:
        # Ctrl-C: whoever comes next is to go on with it, now or once it is planned.
        op._is_owned = False
        if records.is_planned(op) and not op.finished:
            issue.READY[op] = None
        raise


def _hold_back(engine: Engine, limit: int) -> None:
    """Back-pressure: wait while `limit` ops are unfinished."""
    bell = Bell()
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
            if not bell.sleep(nap):
                nap = min(2 * nap, 0.1)
    finally:
        engine._ledger.held.remove(bell)


def closed() -> ClosedError:
    return ClosedError("the engine was closed; make a new one")


def refuse(op: Op, number: int) -> None:
    """The planner found `op` behind the close of its engine: end it."""
    op.number = number
    # Every planner comes to the same end with it, so it does not matter who says so.
    op.failure = op.failure or Failure(number, op.name, op.push_site, closed())
    with suppress(AttributeError):
        del op._fn
        op._engine._ledger.counters.failed_ops.next()
    records.finish(op)


def raise_if_refused(op: Op) -> None:
    """The engine has closed while `op` was pushed: it was either in time, or is refused."""
    PLANNER.plan()
    if op.failure is not None and isinstance(op.failure.cause, ClosedError):
        raise op.failure.cause


def _push_site() -> tuple[Any, int]:
    """The first caller outside this package: its code, and how far it is in it."""
    frame = sys._getframe(2)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    return frame.f_code, frame.f_lasti
