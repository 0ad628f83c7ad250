"""Floor 4, steps. Two launches of a plan as one op: what the first leaves, the second reads.

One plan of the engine's, one event and one end, where each launch had its own: a reduction of few
elements is issued in three quarters of the time. Only the engine's quick way does so: who traces,
records or checks a program is told of each launch.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from cudasync.array.elementwise.accesses import NO_TOKENS
from cudasync.engine.current import engine as current_engine
from cudasync.engine.device import launching

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from cudasync.array.steps.step import Scratches, Step
    from cudasync.driver import Event, Stream

_push = launching.push


def pushed_together(
    first: Step,
    operands: tuple[Any, ...],
    scratches: Scratches,
    last: Step,
    result: Any,
    frame: FrameType,
    again: tuple[Any, ...] = (),
) -> bool:
    """Push `first`, from `operands` to new scratch, and `last`, from `again`, which are among the
    operands, and the scratch to `result`. False where nothing is pushed: then they have to be
    pushed one by one."""
    engine = current_engine()
    if not engine._is_direct or first._is_checked or last._is_checked:
        return False
    between = scratches.take()
    one, read = first._packed(operands, between)
    other, _ = last._packed((*again, between), result)
    # Alive until they are issued.
    one.kept = other.kept = (operands, between, result)
    accesses = ((read, (), (between.region, result.region)), NO_TOKENS, ())
    names = first._kernel.name, last._kernel.name
    enqueue = partial(_enqueue, one.on, other.on)
    _push(engine, enqueue, accesses, last.name, last.device, frame, names)
    return True


def _enqueue(
    first: Callable[..., None],
    last: Callable[..., None],
    stream: Stream,
    event: Event | None = None,
) -> None:
    first(stream)
    last(stream, event)
