"""Floor 2. A batch on the host: a worker calls its functions one after the other."""

from __future__ import annotations

from collections import deque
from functools import partial
from operator import length_hint
from types import FunctionType
from typing import TYPE_CHECKING, Any

from cudasync.engine import current, pushing
from cudasync.engine.batch.steps import NAMES, name_for
from cudasync.engine.batch.union import Union
from cudasync.engine.hazards.variable import Var
from cudasync.engine.lifecycle import refusal
from cudasync.engine.log.combiner import COMBINER
from cudasync.engine.op import OpKind, PlainOp

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import FrameType

    from cudasync.engine.batch.steps import Step
    from cudasync.engine.engine import Engine
    from cudasync.engine.op import Op

_LOG = COMBINER.log
_maybe_inside = current.maybe_inside


def push(engine: Engine, steps: list[Step], name: str, priority: int, pool: str | None) -> Op:
    """Push a batch of functions, whatever they access."""
    union = Union()
    for step in steps:
        union.add(step.accesses)
    (only_read, updated, written), reads, writes = union.accesses()
    return pushing.push(
        engine,
        partial(call_each, [(step.call, None, None) for step in steps]),
        OpKind.HOST,
        (*only_read, *updated, *reads),
        (*updated, *written, *writes),
        name,
        priority,
        None,
        engine._pools[pool or "compute"],
        bind=_with_op,
    )


def push_functions(
    engine: Engine, given: Sequence[Any], name: str | None, frame: FrameType
) -> Op | None:
    """Push a batch of functions on variables, onto an engine that is plain.

    None, with nothing done, if a step is anything else. This is what each function pays, and then
    what `Engine.push` does for one: no call that can be spared.
    """
    # What is read before a step writes it; what is written.
    read: dict[Var, None] = {}
    written: dict[Var, None] = {}
    last_reads = last_writes = None
    try:
        for fn, reads, writes in given:
            if fn.__class__ is not FunctionType and not callable(fn):
                return None
            if reads is last_reads and writes is last_writes:
                continue
            last_reads, last_writes = reads, writes
            # To loop over a single thing costs an iterator, so it is unpacked instead. And that
            # comes first: to ask an array of one element whether it is true may wait for it.
            if len(reads) == 1:
                (each,) = reads
                if each not in written:
                    if each.__class__ is not Var:
                        return None
                    read[each] = None
            elif reads:
                for each in reads:
                    if each not in written:
                        if each.__class__ is not Var:
                            return None
                        read[each] = None
            if len(writes) == 1:
                (each,) = writes
                if each.__class__ is not Var:
                    return None
                written[each] = None
            elif writes:
                for each in writes:
                    if each.__class__ is not Var:
                        return None
                    written[each] = None
    except (TypeError, ValueError):
        # A step of another kind; a single thing for a sequence; something without a hash.
        return None
    size = len(given)
    op = PlainOp()
    op.finished = False
    op.name = (NAMES[size] if size < len(NAMES) else name_for(size)) if name is None else name
    op._engine = engine
    op._fn = partial(call_each, given, op)
    op._claims = []
    op._reads = tuple(read)
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


def call_each(steps: Sequence[tuple[Any, ...]], op: Any) -> list[Any]:
    """Call the function of one step after the other; what each returned. `op` is told at which one
    failed."""
    remaining = iter(steps)
    try:
        return [fn() for fn, _, _ in remaining]
    except BaseException:
        index = len(steps) - length_hint(remaining) - 1
        if index >= 0:
            op._step = f"step {index} ({pushing.name_of(steps[index][0], None)})"
        # As in `Worker._drain`: the exception refers to this frame, and up to Python 3.11 to one of
        # the comprehension, whose iterator lets go of the steps at its end.
        deque(remaining, maxlen=0)
        steps, remaining, op = (), iter(()), None
        raise


def _with_op(op: Op, fn: Callable[..., Any]) -> Callable[..., Any]:
    return partial(fn, op)
