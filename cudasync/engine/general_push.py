"""Floor 2. Pushes of anything but a plain function on variables.

They handle device ops, byte ranges, priorities, limits, traces, the serial engine, and an engine
that closes.
"""

from __future__ import annotations

import operator
import os
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

from cudasync.atomic import Bell
from cudasync.engine import current
from cudasync.engine.device import device_push
from cudasync.engine.device.events import recorded
from cudasync.engine.device.ready import settle
from cudasync.engine.hazards.checked import free, held
from cudasync.engine.hazards.interval_map import keep_what_lies_between
from cudasync.engine.hazards.variable import resolve
from cudasync.engine.lifecycle import left_ops, refusal
from cudasync.engine.log.combiner import COMBINER
from cudasync.engine.op import Op, OpKind
from cudasync.engine.op_classes import DeviceOp, FullOp

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType, FrameType
    from typing import TypeAlias

    from cudasync.driver import Device
    from cudasync.engine.engine import Engine

    Bind: TypeAlias = Callable[[Any, Callable[..., Any]], Callable[..., Any]]

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
# Rooms that are programs: a push site may be in their files, as in a user's.
_PROGRAMS = tuple(_PACKAGE + name + os.sep for name in ("demo", "experiments"))
_LOG = COMBINER.log
# Allocations are over when their push returns; frees follow kernels but are none; kernels follow
# waits for foreign streams, which follow no op.
_ON_THEIR_OWN = (OpKind.ALLOCATE, OpKind.FREE, OpKind.WAIT)


def name_of(fn: object, name: str | None) -> str:
    """The name of an op that calls `fn`. Raises TypeError if `fn` is not callable."""
    if not callable(fn):
        raise TypeError(f"an op needs a function, not {type(fn).__name__}")
    if name is not None:
        return name
    known = getattr(fn, "__name__", None)
    return known if isinstance(known, str) else type(fn).__name__


def as_priority(priority: Any) -> int:
    """A priority as an int, since heaps of ops compare priorities. Raises TypeError for others."""
    try:
        return operator.index(priority)
    except TypeError:
        kind = type(priority).__name__
        raise TypeError(f"a priority is an integer (larger runs first), not {kind}") from None


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
    kernel: str | tuple[str, ...] = "",
    is_users: bool = False,
    bind: Bind | None = None,
    is_blocking: bool = False,
    site: FrameType | None = None,
) -> Op:
    """Make an op and put it into the log; issue a device op if possible.

    A user's function is called with the thread inside the op; functions of the library push
    nothing. A batch checks its steps' declarations itself; its op calls `bind(op, fn)`. `site` is
    the push site of a host op, if the caller knows it.
    """
    if engine._is_closed:
        raise refusal.closed()
    if priority.__class__ is not int:
        priority = as_priority(priority)
    read_variables, read_regions = resolve(reads, "reads")
    written_variables, written_regions = resolve(writes, "writes")
    regions = keep_what_lies_between(tuple(read_regions), (), tuple(written_regions))
    if device is not None and engine._is_checked and bind is None:
        fn = (
            held(fn, regions, read_variables, written_variables, name, push_site())
            if kernel or is_users
            else free(fn)
        )
    variables = tuple(read_variables), tuple(written_variables)
    if device is not None and engine._serial is None:
        prepare: Callable[[DeviceOp], bool] | None = _let_push if is_users else None
        if bind or priority or is_blocking or not engine._is_direct or kind in _ON_THEIR_OWN:
            prepare = partial(_prepare, engine, priority, is_users, is_blocking, bind)
        return device_push.push(
            engine,
            partial(recorded, fn) if bind is None else fn,
            (regions, *variables),
            name,
            device,
            push_site(),
            kernel,
            None,
            kind,
            prepare,
        )
    op = FullOp() if device is None else _serial(kind, device, kernel)
    op.finished = False
    op.failure = None
    op.number = 0
    if priority:
        op.priority = priority
    op.name = name
    op._engine = engine
    op._fn = fn if bind is None else bind(op, fn)
    op._claims = []
    op._reads, op._writes = variables
    op._pool = pool
    if read_regions or written_regions:
        op._regions = regions
        if engine._serial is None:
            op._pool = pool.regional
    op._node = None
    frame = push_site() if site is None else site
    op._code, op._at = frame.f_code, frame.f_lasti
    _submit(engine, op, pool)
    # Only now: a thread that sees the count comes after the write.
    for variable in written_variables:
        variable._note_write()
    return op


def _prepare(
    engine: Engine,
    priority: int,
    is_users: bool,
    is_blocking: bool,
    bind: Bind | None,
    op: DeviceOp,
) -> bool:
    """Set the rare fields of a device op; True if its issue is more than a call of its function:
    a priority selects other streams, and a trace records the issue."""
    if op.kind is OpKind.ALLOCATE:
        op._is_owned = True
    if is_blocking:
        op._is_blocking = True
    fn: Any = op._fn
    if is_users:
        _let_push(op)
    elif bind is not None:
        op._fn = bind(op, fn)
    if priority:
        op.priority = priority
    _announce(engine, op)
    is_plain = not priority and not is_blocking and op.kind not in _ON_THEIR_OWN
    return not is_plain or engine._ledger.recorder is not None


def _let_push(op: DeviceOp) -> bool:
    """Have a user's function called with the thread inside the op: the function may push, and its
    pushes go to the op's own engine."""
    fn: Any = op._fn
    op._fn = partial(current.call_with_its_engine, op, fn)
    return False


def _serial(kind: OpKind, device: Device, kernel: str | tuple[str, ...]) -> DeviceOp:
    """A device op for the serial engine; the caller sets the remaining fields."""
    op = DeviceOp()
    op.kind = kind
    op._device = device
    op._kernel = kernel
    op._before = op._point = op._regions = None
    op._outcome = []
    op._is_watched = op._is_awaited = False
    return op


def _submit(engine: Engine, op: Op, pool: Any) -> None:
    """Put `op` into the log and ensure that it is planned."""
    is_nested = current.maybe_inside() is not None
    _announce(engine, op)
    if engine._serial is not None:
        is_nested = is_nested or engine._serial.is_inside()
        engine._serial.submit(op)
    else:
        if op.priority and not pool.is_ranked:
            engine._rank()
        _LOG.append(op)
        if not pool.searching and pool.is_silent():
            pool.ring()
    # Behind the append: a wait for all that misses this number has its fence behind the op.
    if is_nested:
        engine._nested.next()
    if engine._is_closed:
        refusal.raise_if_refused(op)


def _announce(engine: Engine, op: Op) -> None:
    """Before the append, on an engine with a limit or a trace: hold back, and record the push."""
    # A push inside an op is not held back: the op itself may be the awaited one. Nor is the push of
    # a finaliser on a thread of the engine, since that thread may have to run the op.
    if engine._max_in_flight is not None and not current.inside() and not current.is_ours():
        _hold_back(engine, engine._max_in_flight)
    if engine._ledger.recorder is not None:
        engine._ledger.recorder.pushed(op)


def _hold_back(engine: Engine, limit: int) -> None:
    """Back-pressure: wait while `limit` ops are unfinished."""
    bell = Bell()
    # Never a serial engine's: its ops are over after their push.
    issuer: Any = engine._issuer
    engine._ledger.held.append(bell)
    try:
        nap = 1e-3
        while True:
            # An engine with a limit runs no op without a node: `_registered` has all planned ops.
            COMBINER.plan()
            settle()
            unfinished = list(engine._registered)
            if len(unfinished) < limit:
                return
            unfinished[0]._pool.watch(unfinished[0])
            # Any of them may finish first.
            issuer.watch_streams()
            if bell.sleep(nap):
                continue
            nap = min(2 * nap, 0.1)
            left_ops.end_left(engine)
    finally:
        engine._ledger.held.remove(bell)


class _Own(dict[str, bool]):
    """Whether a file belongs to this package. Others are not stored: there is no end to them."""

    def __missing__(self, file: str) -> bool:
        if not file.startswith(_PACKAGE) or file.startswith(_PROGRAMS):
            return False
        self[file] = True
        return True


_OWN = _Own()


def is_ours(code: CodeType) -> bool:
    """True for code of this package that is no program."""
    return _OWN[code.co_filename]


def push_site() -> FrameType:
    """The first caller outside this package."""
    # Every push walks past ten frames or so: one look-up for each.
    frame = sys._getframe(2)
    while _OWN[frame.f_code.co_filename]:
        caller = frame.f_back
        if caller is None:
            break
        frame = caller
    return frame
