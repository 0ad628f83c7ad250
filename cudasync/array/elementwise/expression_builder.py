"""Floor 4, elementwise. Builds the expression of a function from the dtypes of its operands.

An operand is given by its dtype, or by `Number` of a dtype (a NumPy scalar). A Python scalar is
given by its type, and takes the dtype of the others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from cudasync.array.dtypes import promotion
from cudasync.array.dtypes.supported import BOOL
from cudasync.array.expressions.tree import Input, Scalar, apply, cast
from cudasync.array.functions.table import FUNCTIONS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cudasync.array.dtypes.supported import DType
    from cudasync.array.expressions.tree import Expression
    from cudasync.array.functions.function import Function


@dataclass(frozen=True, slots=True)
class Number:
    """A number with a dtype of its own."""

    dtype: DType


# A `type` is the type of a Python scalar.
Operand: TypeAlias = "DType | Number | type"


def leaf(position: int, operand: Operand, dtype: DType) -> Expression:
    """The operand at `position`, as a value of `dtype`."""
    if isinstance(operand, type):
        return Scalar(position, dtype)
    if isinstance(operand, Number):
        return cast(Scalar(position, operand.dtype), dtype)
    return cast(Input(position, operand), dtype)


def common_dtype(operands: Sequence[Operand]) -> DType:
    """The dtype in which operands of these dtypes are computed; TypeError if there is none."""
    strong = [_dtype_of(each) for each in operands if not isinstance(each, type)]
    weak = [each for each in operands if isinstance(each, type)]
    if not strong:
        raise TypeError("an operation needs at least one array: make one with xp.asarray(...)")
    return promotion.common(strong, weak)


def _dtype_of(operand: Operand) -> DType:
    assert not isinstance(operand, type)
    return operand.dtype if isinstance(operand, Number) else operand


def call(function: Function, operands: Sequence[Operand]) -> Expression:
    """The expression of a function of the table; TypeError for dtypes that it does not take."""
    computed = operands[1:] if function.selects else operands
    dtype = common_dtype(computed)
    function.accept(dtype)
    dtypes = [dtype] * len(operands)
    if function.selects:
        if operands[0] is not bool and _dtype_of(operands[0]) != BOOL:
            raise TypeError(
                f"the condition of {function.name} must be an array of bool, not "
                f"{_dtype_of(operands[0])}: write a comparison"
            )
        dtypes[0] = BOOL
    leaves = [
        leaf(i, each, as_) for i, (each, as_) in enumerate(zip(operands, dtypes, strict=True))
    ]
    return apply(function, *leaves)


def clip(operands: Sequence[Operand], *, has_low: bool, has_high: bool) -> Expression:
    """`minimum(maximum(x, low), high)`, or only one of the two, in the dtype of x."""
    dtype = _dtype_of(operands[0])
    function = FUNCTIONS["maximum"]
    function.accept(dtype)
    if common_dtype(operands) != dtype:
        raise TypeError(f"the bounds of clip do not fit {dtype}: cast x with xp.astype first")
    tree = leaf(0, operands[0], dtype)
    bounds = [leaf(i, each, dtype) for i, each in enumerate(operands[1:], 1)]
    if has_low:
        tree = apply(FUNCTIONS["maximum"], tree, bounds[0])
    if has_high:
        tree = apply(FUNCTIONS["minimum"], tree, bounds[-1])
    return tree
