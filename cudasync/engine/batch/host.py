"""Floor 2. A batch on the host: a worker calls its functions one after the other."""

from __future__ import annotations

from types import MethodType
from typing import TYPE_CHECKING, Any

from cudasync.engine import current, general_push
from cudasync.engine.batch.steps import NAMES, name_for
from cudasync.engine.batch.union import Union
from cudasync.engine.hazards.variable import Var
from cudasync.engine.lifecycle import refusal
from cudasync.engine.log.combiner import COMBINER
from cudasync.engine.op import OpKind
from cudasync.engine.op_classes import PlainOp

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType

    from cudasync.engine.batch.steps import Step
    from cudasync.engine.engine import Engine
    from cudasync.engine.op import Op

# There is one empty tuple.
_NOTHING = ()
_LOG = COMBINER.log
_maybe_inside = current.maybe_inside


def push(engine: Engine, steps: list[Step], name: str, priority: int, pool: str | None) -> Op:
    """Push a batch of functions with any accesses."""
    union = Union()
    for step in steps:
        union.add(step.accesses)
    (only_read, updated, written), reads, writes = union.accesses()
    calls = [(step.call, None, None) for step in steps]
    return general_push.push(
        engine,
        call_each,
        OpKind.HOST,
        (*only_read, *updated, *reads),
        (*updated, *written, *writes),
        name,
        priority,
        None,
        engine._pools[pool or "compute"],
        bind=lambda op, call: MethodType(call, (calls, op)),
    )


def push_functions(
    engine: Engine, given: Sequence[Any], name: str | None, frame: FrameType
) -> Op | None:
    """Push a batch of functions on variables, onto a plain engine.

    Returns None, with nothing done, if a step is anything else. Each function pays for this code,
    so it avoids calls.
    """
    # Variables read before a step writes them; variables written, and the last of these.
    read: dict[Var, None] = {}
    written: dict[Var, None] = {}
    latest = None
    try:
        for step in given:
            if step.__class__ is not tuple:
                return None
            fn, reads, writes = step
            if not callable(fn):
                return None
            # The classes first: the truth of an array of one element may wait for the array.
            if reads is not _NOTHING:
                if reads.__class__ is not tuple and reads.__class__ is not list:
                    return None
                for each in reads:
                    if each.__class__ is not Var:
                        return None
                    if each not in written:
                        read[each] = None
            if writes.__class__ is not tuple and writes.__class__ is not list:
                return None
            if len(writes) == 1:
                # A loop costs an iterator, so a single thing is unpacked instead.
                (each,) = writes
                if each is latest:
                    continue
                if each.__class__ is not Var:
                    return None
                written[each] = None
                latest = each
            else:
                for each in writes:
                    if each.__class__ is not Var:
                        return None
                    written[each] = None
    except ValueError:
        # A step of another size.
        return None
    op = PlainOp()
    size = len(given)
    # From here on as in `Engine.push`, inlined.
    op.finished = False
    op.name = (NAMES[size] if size < len(NAMES) else name_for(size)) if name is None else name
    op._engine = engine
    # A bound method, since a worker calls it faster than a `partial`.
    op._fn = MethodType(call_each, (given, op))
    op._claims = []
    op._reads = tuple(read) if read else ()
    op._writes = tuple(written)
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
        engine._nested.next()
    # Only now: a thread that sees the count comes after the write.
    for each in written:
        next(each._written)
    compute = engine._compute
    if not compute.searching and compute.is_silent():
        compute.ring()
    if engine._is_closed:
        refusal.raise_if_refused(op)
    return op


def call_each(batch: Any) -> list[Any]:
    """Call the functions of the steps of `batch`, which is (steps, op), in order; return their
    results. Tells the op which step failed."""
    steps, op = batch
    results: list[Any] = []
    fn = None
    try:
        for fn, _, _ in steps:
            results.append(fn())
        return results
    except BaseException:
        index = len(results)
        if index < len(steps):
            op._step = f"step {index} ({general_push.name_of(steps[index][0], None)})"
        # As in `drain_loop.drain`: the exception refers to this frame.
        batch = steps = op = fn = None
        raise
