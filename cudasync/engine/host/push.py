"""Floor 2. `Engine.push`, the cost of every host op.

A plain function on variables is handled here, with as few calls as possible. `push_any` handles all
other ops, and `general_push` makes them.
"""

from __future__ import annotations

import sys
from types import FunctionType
from typing import TYPE_CHECKING, Any

from cudasync.driver.device import as_device
from cudasync.engine import current, general_push
from cudasync.engine.hazards.foreign_arrays import await_strangers
from cudasync.engine.hazards.variable import Var, as_tuple
from cudasync.engine.lifecycle import refusal
from cudasync.engine.log.combiner import COMBINER
from cudasync.engine.op import Op, OpKind
from cudasync.engine.op_classes import PlainOp

if TYPE_CHECKING:
    from collections.abc import Callable

    from cudasync.driver.device import DeviceLike
    from cudasync.engine.engine import Engine

_LOG = COMBINER.log
_maybe_inside = current.maybe_inside
_getframe = sys._getframe


def push(
    self: Engine,
    fn: Callable[..., Any],
    reads: Any = (),
    writes: Any = (),
    name: str | None = None,
    priority: int = 0,
    device: DeviceLike | None = None,
    pool: str | None = None,
) -> Op:
    """Push an op: `fn()` on a host worker, or with `device=`, `fn(stream)` that enqueues work.

    `reads` and `writes` take variables, device arrays and views, and NumPy arrays, one or a
    sequence. Data in both is read, then written. Data in `writes` alone is overwritten: the op
    does not need the old value, and runs even if that is poisoned. A view with gaps counts by its
    span and is always also read, because the bytes in its gaps stay. Among ready host ops a larger
    `priority` goes first. A device op with a positive priority has streams of that priority, if the
    device supports it, and is never behind an op without priority. `pool` names the worker pool of
    a host op; `device` is a Device or its ordinal. `fn(stream)` is called as soon as the work
    before it is issued, perhaps by another thread that pushes or waits. It should enqueue work and
    not block, as copies of pageable memory do.

    Returns at once (except with `max_in_flight`, and on a serial engine). Waits for the op raise
    errors of `fn`. Raises TypeError and ValueError for wrong arguments, ClosedError after `close`.
    """
    # Every host op pays for this code, so it avoids calls and leaves rare cases to others. A loop
    # costs an iterator, so a single thing is unpacked. A keyword-only default costs a dict look-up,
    # so every argument may be positional.
    if device is not None or pool is not None or priority or not self._is_plain:
        return self._push_any(fn, reads, writes, name, priority, device, pool)
    if fn.__class__ is not FunctionType:
        name = general_push.name_of(fn, name)
    if reads.__class__ is not tuple:
        reads = tuple(reads) if reads.__class__ is list else as_tuple(reads)
    if reads:
        if len(reads) == 1:
            (each,) = reads
            if each.__class__ is not Var:
                return self._push_any(fn, reads, writes, name, priority, device, pool)
        else:
            for each in reads:
                if each.__class__ is not Var:
                    return self._push_any(fn, reads, writes, name, priority, device, pool)
    if writes.__class__ is not tuple:
        writes = tuple(writes) if writes.__class__ is list else as_tuple(writes)
    written = None
    if writes:
        if len(writes) == 1:
            (written,) = writes
            if written.__class__ is not Var:
                return self._push_any(fn, reads, writes, name, priority, device, pool)
        else:
            for each in writes:
                if each.__class__ is not Var:
                    return self._push_any(fn, reads, writes, name, priority, device, pool)
    frame = _getframe(1)
    op = PlainOp()
    op.finished = False
    op.name = fn.__name__ if name is None else name
    op._engine = self
    op._fn = fn
    op._claims = []
    op._reads = reads
    op._writes = writes
    op._node = None
    op._code = frame.f_code
    op._at = frame.f_lasti
    # `Log.append`, inlined.
    segment = _LOG.tail
    segment.append(op)
    if segment.is_sealed:
        _LOG.append_again(segment, op)
    # Behind the append: a wait for all that misses this number has its fence behind the op.
    if _maybe_inside() is not None:
        self._nested.next()
    # Only now: a thread that sees the count comes after the write.
    if written is not None:
        next(written._written)
    elif writes:
        for each in writes:
            next(each._written)
    compute = self._compute
    if not compute.searching and compute.is_silent():
        compute.ring()
    if self._is_closed:
        refusal.raise_if_refused(op)
    return op


def push_any(
    self: Engine,
    fn: Callable[..., Any],
    reads: Any,
    writes: Any,
    name: str | None,
    priority: int,
    device: DeviceLike | None,
    pool: str | None,
) -> Op:
    """`push` for any op but a plain function on variables."""
    name = general_push.name_of(fn, name)
    if device is not None and pool is not None:
        raise ValueError(
            "pool= is for host ops; leave it out for a device op, which runs on a stream"
        )
    on = None if device is None else as_device(device)
    place = self._pool_named(pool)
    await_strangers(self, reads, writes)
    kind = OpKind.HOST if device is None else OpKind.KERNEL
    return general_push.push(
        self, fn, kind, reads, writes, name, priority, on, place, is_users=True
    )
