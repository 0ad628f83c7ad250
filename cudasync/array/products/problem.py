"""Floor 4, products. The problem of a product, from the shapes and dtypes of two arrays.

The result has an axis for each axis of the stack of matrices, one for the rows and one for the
columns. An operand of one dimension is a row on the left and a column on the right; the result
lacks that axis.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cudasync.array.dtypes.promotion import promoted
from cudasync.array.dtypes.supported import NUMERIC, supported
from cudasync.array.expressions.layout import broadcast_shapes, broadcast_strides

if TYPE_CHECKING:
    from cudasync.array.dtypes.supported import DType
    from cudasync.array.elementwise.layouts import Layout

Sizes = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Problem:
    """`stack` has the lengths of the axes in front, `depth` is the number of summed products.

    Strides are in elements: those of each operand along the stack, then of its rows and columns.
    """

    dtypes: tuple[DType, DType]
    dtype: DType
    stack: Sizes
    rows: int
    columns: int
    depth: int
    strides: tuple[Sizes, Sizes]
    result_shape: Sizes


def problem_of(left: Layout, right: Layout) -> Problem:
    """The problem for arrays of these layouts. TypeError for dtypes that a product does not take,
    ValueError for shapes that do not fit."""
    dtypes = supported(left.dtype), supported(right.dtype)
    dtype = dtype_of(*dtypes)
    shapes, strides = _as_matrices(left, right)
    (rows, depth), (depth_too, columns) = shapes[0][-2:], shapes[1][-2:]
    if depth != depth_too:
        raise ValueError(
            f"matmul of shapes {left.shape} and {right.shape}: the last axis of the left has "
            f"{depth} elements, the matching axis of the right {depth_too}"
        )
    try:
        stack = broadcast_shapes(shapes[0][:-2], shapes[1][:-2])
    except ValueError as error:
        raise ValueError(
            f"matmul of shapes {left.shape} and {right.shape}: the axes before the last two do "
            f"not broadcast"
        ) from error
    along = [
        (*broadcast_strides(shape[:-2], steps[:-2], stack), *steps[-2:])
        for shape, steps in zip(shapes, strides, strict=True)
    ]
    result_shape = (
        *stack,
        *((rows,) if len(left.shape) > 1 else ()),
        *((columns,) if len(right.shape) > 1 else ()),
    )
    return Problem(dtypes, dtype, stack, rows, columns, depth, (along[0], along[1]), result_shape)


def dtype_of(left: DType, right: DType, name: str = "matmul") -> DType:
    """The dtype of a product of arrays of these dtypes; TypeError if there is none."""
    dtype = promoted(left, right)
    if dtype.kind not in NUMERIC:
        raise TypeError(f"{name} takes numbers, not {dtype}: cast with xp.astype(x, xp.int8)")
    return dtype


def _as_matrices(left: Layout, right: Layout) -> tuple[list[Sizes], list[Sizes]]:
    """Shapes and strides with at least two axes."""
    shapes, strides = [left.shape, right.shape], [left.element_strides, right.element_strides]
    if not all(shapes):
        raise ValueError(
            f"matmul of shapes {left.shape} and {right.shape}: both need at least 1 dimension; "
            f"multiply with *"
        )
    if len(left.shape) == 1:
        shapes[0], strides[0] = (1, *shapes[0]), (0, *strides[0])
    if len(right.shape) == 1:
        shapes[1], strides[1] = (*shapes[1], 1), (*strides[1], 0)
    return shapes, strides
