"""Floor 4, advanced indexing. Writes rows of an array at places from an array; other rows stay.

The order of threads has no effect: places are sorted, and of equal places the last writes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from cudasync.array.advanced_indexing import kernel
from cudasync.array.elementwise.layouts import raise_if_over
from cudasync.array.host.memory import CPU, view_of
from cudasync.array.steps.compilation import kernel_of
from cudasync.array.steps.step import Step
from cudasync.array.steps.step_cache import Known
from cudasync.engine.current import engine as current_engine
from cudasync.engine.op import OpKind

if TYPE_CHECKING:
    from types import FrameType

_BLOCK = 256
_known: Known[Step] = Known()


def write(target: Any, at: Any, order: Any, values: Any, frame: FrameType) -> None:
    """`target[o, at[k], i] = values[o, order[k], i]`, in place; returns at once.

    `target` has three dimensions and is contiguous, as are the others. `at` is sorted, and -1
    writes nothing. `order` ascends among equal places; None stands for the identity.
    """
    operands = (at, values) if order is None else (at, order, values)
    if target.layout.device is CPU:
        _write_on_host(target, operands)
        return
    raise_if_over(*operands, target)
    _, length, inner = target.shape
    threads, numbers = values.size, (at.size, inner, length)
    text = kernel.write(target.dtype.itemsize, is_ordered=order is not None)

    def step() -> Step:
        return Step(
            "write",
            target.device,
            kernel_of(text, "write", target.device),
            grid=(-(-threads // _BLOCK),),
            block=(_BLOCK,),
            first=(0,) * (len(operands) + 1),
            numbers=[(each, "Q") for each in (threads, *numbers)],
            updates=True,
        )

    _known.get((text, threads, numbers), target.device, step)(operands, target, frame)


def _write_on_host(target: Any, operands: tuple[Any, ...]) -> None:
    regions = [each.region for each in operands]
    at, *order, values = map(view_of, operands)
    kept = view_of(target)
    outer, length, inner = target.shape

    def run() -> None:
        rows = values.reshape((outer, at.size, inner))
        is_last = np.append(at[1:] != at[:-1], True) & (at >= 0) & (at < length)
        of = order[0][is_last] if order else np.flatnonzero(is_last)
        kept[:, at[is_last]] = rows[:, of]

    current_engine()._push(
        run,
        OpKind.HOST,
        reads=[*regions, target.region],
        writes=(target.region,),
        name="write",
    )
