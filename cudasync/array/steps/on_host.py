"""Floor 4, steps. The counterpart of a step for arrays on the CPU: a host op of NumPy's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from cudasync.array.allocation import DEAD, reap
from cudasync.array.elementwise.results import result_over
from cudasync.array.host.memory import bytes_for, view_of
from cudasync.engine.current import engine as current_engine
from cudasync.engine.op import OpKind

if TYPE_CHECKING:
    from collections.abc import Callable

    from cudasync.array.elementwise.layouts import Layout

_dead = DEAD.items


def computed(
    name: str, operands: tuple[Any, ...], result: Layout, function: Callable[..., None]
) -> Any:
    """A new array on the CPU: `function(views of the operands, view of it)`, as one op.

    `result` is contiguous, and `function` must write all of it. Returns at once. NumPy's warnings
    are silenced, as on a device.
    """
    made = result_over(bytes_for(result), result)
    computed_into(name, operands, made, function)
    return made


def computed_into(
    name: str, operands: tuple[Any, ...], made: Any, function: Callable[..., None]
) -> None:
    """`computed`, to a contiguous array that shares no bytes with the operands."""
    if _dead:
        reap()
    if not made.size:
        return
    views, target = [view_of(each) for each in operands], view_of(made)

    def run() -> None:
        with np.errstate(all="ignore"):
            function(*views, target)

    regions = [each.region for each in operands]
    current_engine()._push(run, OpKind.HOST, reads=regions, writes=(made.region,), name=name)
