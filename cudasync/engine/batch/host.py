"""Floor 2. A batch on the host: a worker calls its functions one after the other."""

from __future__ import annotations

from types import MethodType
from typing import TYPE_CHECKING, Any

from cudasync.engine import current, pushing
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
    """Push a batch of functions, whatever they access."""
    union = Union()
    for step in steps:
        union.add(step.accesses)
    (only_read, updated, written), reads, writes = union.accesses()
    calls = [(step.call, None, None) for step in steps]
    return pushing.push(
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
    """Push a batch of functions on variables, onto an engine that is plain.

    None, with nothing done, if a step is anything else. This is what each function pays: no call
    that can be spared.
    """
    # What is read before a step writes it; what is written, and which of it last.
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
            # The classes first: to ask an array of one element whether it is true may wait for it.
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
                # To loop over a single thing costs an iterator, so it is unpacked instead.
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
    # From here on as in `Engine.push`, which has no call to spare: see DESIGN.md.
    op.finished = False
    op.name = (NAMES[size] if size < len(NAMES) else name_for(size)) if name is None else name
    op._engine = engine
    # A bound method, since a worker calls that without a detour, as it would not a `partial`.
    op._fn = MethodType(call_each, (given, op))
    op._claims = []
    op._reads = tuple(read) if read else ()
    op._writes = tuple(written)
    op._node = None
    op._code = frame.f_code
    op._at = frame.f_lasti
    if _maybe_inside() is not None:
        engine._nested.next()
    # `Log.append`, written out.
    segment = _LOG.tail
    segment.append(op)
    if segment.is_sealed:
        _LOG.append_again(segment, op)
    # Only now: whoever sees that a write was counted comes after it.
    for each in written:
        next(each._written)
    compute = engine._compute
    if not compute.searching and compute.is_silent():
        compute.ring()
    if engine._is_closed:
        refusal.raise_if_refused(op)
    return op


def call_each(batch: Any) -> list[Any]:
    """Call the functions of the steps of `batch`, which is (steps, op), one after the other; what
    each returned. The op is told at which step one failed."""
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
            op._step = f"step {index} ({pushing.name_of(steps[index][0], None)})"
        # As in `Worker._drain`: the exception refers to this frame.
        batch = steps = op = fn = None
        raise
