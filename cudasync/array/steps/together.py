"""Floor 4, steps. Two launches of a plan as one op: the second reads the first one's result.

Both share one plan of the engine's, one event and one end, so a reduction of few elements is issued
in three quarters of the time. Only the engine's direct path does so: traces, recordings and checks
see each launch.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from cudasync.array.elementwise.accesses import NO_TOKENS
from cudasync.engine.current import engine as current_engine
from cudasync.engine.device import device_push
from cudasync.engine.replay.tape import rounds

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from cudasync.array.memory.pool import Scratches
    from cudasync.array.steps.step import Step
    from cudasync.driver import Event, Stream

_push = device_push.push


def pushed_together(
    first: Step,
    operands: tuple[Any, ...],
    scratches: Scratches,
    last: Step,
    result: Any,
    frame: FrameType,
    again: tuple[Any, ...] = (),
) -> bool:
    """Push two steps as one op: `first` from `operands` to new scratch, `last` from `again` and the
    scratch to `result`. `again` are some of the operands. False if nothing was pushed: then the
    steps must be pushed one by one."""
    engine = current_engine()
    if not engine._is_direct or first._is_checked or last._is_checked:
        return False
    if engine._replays and rounds() is not None:
        # A run is made of single launches.
        return False
    between = scratches.take(operands)
    one, read = first._packed(operands, between)
    other, _ = last._packed((*again, between), result)
    # Alive until the launches are issued.
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
