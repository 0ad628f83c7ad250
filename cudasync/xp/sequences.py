"""Floor 4, the standard's namespace: creation of sequences of numbers. See `creation`."""

from __future__ import annotations

import math
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from cudasync.array.dtypes.supported import (
    BOOL,
    DEFAULT_FLOAT,
    DEFAULT_INT,
    FLOAT64,
    INT64,
    supported,
)
from cudasync.array.elementwise.operation import Operation
from cudasync.array.elementwise.plan import user_frame
from cudasync.array.expressions.tree import Index, Scalar, apply, cast
from cudasync.array.functions.table import FUNCTIONS
from cudasync.driver.arguments.remedies import described
from cudasync.xp.initial_contents import to_overwrite
from cudasync.xp.parameter_checks import as_shape, place

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

    from cudasync.array.array import Array
    from cudasync.array.dtypes.supported import DType


def arange(
    start: Any,
    /,
    stop: Any = None,
    step: Any = 1,
    *,
    dtype: DTypeLike | None = None,
    device: Any = None,
) -> Array:
    """`start`, `start + step` and so on up to `stop`, which is excluded; from 0 with one number.

    The dtype holds all three, unless another is given; floats are computed in float64 and then
    cast. ValueError for a step of 0.
    """
    if stop is None:
        start, stop = 0, start
    _check_numbers("arange", start, stop, step)
    if step == 0:
        raise ValueError("the step of arange is 0: give another number")
    is_float = any(isinstance(each, (float, np.floating)) for each in (start, stop, step))
    kind = (DEFAULT_FLOAT if is_float else DEFAULT_INT) if dtype is None else supported(dtype)
    if kind == BOOL:
        raise TypeError("arange makes numbers, not bool")
    if kind.kind != "f" and (start != int(start) or step != int(step)):
        raise TypeError(f"arange of {kind} takes integers: make floats and cast them")
    count = max(0, math.ceil((stop - start) / step) if is_float else -((start - stop) // step))
    made = to_overwrite((count,), kind, place(device))
    if not count:
        return made
    number = float if kind.kind == "f" else int
    numbers = (number(start), number(step))
    _counting(kind).into(numbers, made, user_frame())
    return made


def _check_numbers(name: str, *given: Any) -> None:
    for each in given:
        if isinstance(each, (str, bytes, complex)) or not hasattr(type(each), "__float__"):
            raise TypeError(f"{name} takes numbers, not {described(each)}")
        if name == "arange" and isinstance(each, float) and not math.isfinite(each):
            raise ValueError(f"{name} takes finite numbers, not {each}")


@cache
def _counting(dtype: DType) -> Operation:
    """The first number and the step. Floats are computed in float64."""
    within = FLOAT64 if dtype.kind == "f" else INT64
    steps = apply(FUNCTIONS["multiply"], cast(Index(), within), Scalar(1, within))
    tree = cast(apply(FUNCTIONS["add"], Scalar(0, within), steps), dtype)
    return Operation("arange", lambda operands: tree)


def linspace(
    start: float,
    stop: float,
    /,
    num: int,
    *,
    dtype: DTypeLike | None = None,
    device: Any = None,
    endpoint: bool = True,
) -> Array:
    """`num` numbers from `start` to `stop` at equal distances, including `stop` if `endpoint`.

    They are computed in float64 and then cast. ValueError for a negative `num`.
    """
    kind = DEFAULT_FLOAT if dtype is None else supported(dtype)
    _check_numbers("linspace", start, stop)
    made = to_overwrite(as_shape(num), kind, place(device))
    if num == 0:
        return made
    parts = num - 1 if endpoint else num
    step = (stop - start) / parts if parts else 0.0
    last = num - 1 if endpoint and num > 1 else -1
    _spacing(kind).into((float(start), step, last, float(stop)), made, user_frame())
    return made


@cache
def _spacing(dtype: DType) -> Operation:
    steps = apply(FUNCTIONS["multiply"], cast(Index(), FLOAT64), Scalar(1, FLOAT64))
    inner = apply(FUNCTIONS["add"], steps, Scalar(0, FLOAT64))
    is_last = apply(FUNCTIONS["equal"], Index(), Scalar(2, INT64))
    tree = cast(apply(FUNCTIONS["where"], is_last, Scalar(3, FLOAT64), inner), dtype)
    return Operation("linspace", lambda operands: tree)
