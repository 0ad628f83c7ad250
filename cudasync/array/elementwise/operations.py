"""Floor 4, elementwise. The operations of the table, casts and fills."""

from __future__ import annotations

from functools import cache, partial
from typing import TYPE_CHECKING

from cudasync.array.elementwise import expression_builder
from cudasync.array.elementwise.expression_builder import leaf
from cudasync.array.elementwise.operation import Operation
from cudasync.array.functions.table import FUNCTIONS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cudasync.array.dtypes.supported import DType
    from cudasync.array.elementwise.expression_builder import Operand
    from cudasync.array.expressions.tree import Expression

OPERATIONS = {
    name: Operation(name, partial(expression_builder.call, function))
    for name, function in FUNCTIONS.items()
}


@cache
def clip(has_low: bool, has_high: bool) -> Operation:
    """`clip` of an array with one bound or both."""
    return Operation("clip", partial(expression_builder.clip, has_low=has_low, has_high=has_high))


@cache
def cast_to(dtype: DType) -> Operation:
    """One operand, an array or a number, as `dtype`: casts arrays, fills with numbers."""

    def build(operands: Sequence[Operand]) -> Expression:
        (operand,) = operands
        return leaf(0, operand, dtype)

    return Operation("astype", build)
