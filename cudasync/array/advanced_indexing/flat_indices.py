"""Floor 4, advanced indexing. Combines an index array for each axis into one array of places.

It does not wait for the indices, so an index beyond its axis is no error: reading takes the nearest
element, writing leaves that index out. No place is outside of the array.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from cudasync.array.dtypes.supported import INT64
from cudasync.array.elementwise.expression_builder import leaf
from cudasync.array.elementwise.layouts import contiguous
from cudasync.array.elementwise.operation import Operation
from cudasync.array.elementwise.results import new_result, result_over
from cudasync.array.expressions.tree import Scalar, apply
from cudasync.array.functions.table import FUNCTIONS
from cudasync.array.host.memory import CPU, bytes_for
from cudasync.array.memory.limits import check_size

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType

    from cudasync.array.dtypes.supported import DType
    from cudasync.array.elementwise.expression_builder import Operand
    from cudasync.array.expressions.tree import Expression


def unwritten(model: Any, dtype: DType, shape: tuple[int, ...]) -> Any:
    """A new array on the device of `model`, which the next op on it must overwrite whole."""
    layout = contiguous(model.__cudasync_result__, dtype, shape, model.layout.device)
    if layout.device is CPU:
        return result_over(bytes_for(layout), layout)
    check_size(shape, layout.nbytes, layout.device)
    return new_result(layout)


def places(
    indices: Sequence[Any], lengths: Sequence[int], frame: FrameType, *, is_written: bool
) -> Any:
    """The places in C order, as int64, of the elements at `indices`, integers that broadcast.

    An index beyond its axis becomes the nearest one; with `is_written` its place is -1.
    """
    lasts = [length - 1 for length in lengths]
    operands = (*indices, *lengths, *lasts, 0, *((-1,) if is_written else ()))
    return _numbered(len(lengths), is_written)(operands, frame)


@cache
def _numbered(rank: int, is_written: bool) -> Operation:
    zero, nowhere = Scalar(3 * rank, INT64), Scalar(3 * rank + 1, INT64)

    def build(operands: Sequence[Operand]) -> Expression:
        total: Expression | None = None
        within: Expression | None = None
        for axis in range(rank):
            index = leaf(axis, operands[axis], INT64)
            length, last = Scalar(rank + axis, INT64), Scalar(2 * rank + axis, INT64)
            from_end = apply(FUNCTIONS["add"], index, length)
            at = apply(FUNCTIONS["where"], apply(FUNCTIONS["less"], index, zero), from_end, index)
            nearest = apply(FUNCTIONS["minimum"], apply(FUNCTIONS["maximum"], at, zero), last)
            is_in = apply(FUNCTIONS["equal"], at, nearest)
            within = is_in if within is None else apply(FUNCTIONS["logical_and"], within, is_in)
            if total is None:
                total = nearest
            else:
                rows = apply(FUNCTIONS["multiply"], total, length)
                total = apply(FUNCTIONS["add"], rows, nearest)
        assert total is not None
        assert within is not None
        return apply(FUNCTIONS["where"], within, total, nowhere) if is_written else total

    return Operation("places", build)
