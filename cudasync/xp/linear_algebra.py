"""Floor 4, the standard's namespace: linear algebra. All return at once.

Sums of products are computed in the dtype of the result, for float16 in float32; integers wrap. The
bits are the same each time. TypeError for bool, ValueError for shapes that do not fit.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from cudasync.array.elementwise.operation import COPY
from cudasync.array.elementwise.plan import user_frame
from cudasync.array.expressions.layout import broadcast_shapes
from cudasync.array.products.operation import (
    check_out,
    check_pair,
    check_result,
    product,
    product_into,
)
from cudasync.array.reductions.operation import array
from cudasync.xp.manipulation import broadcast_to, reshape
from cudasync.xp.parameter_checks import as_axes, whole

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cudasync.array.array import Array


def matmul(x1: Array, x2: Array, /, *, out: Array | None = None) -> Array:
    """The matrix product over the last two axes, for each matrix of a stack; stacks broadcast. An
    array of one dimension is a row on the left, a column on the right. With `out`, an array of the
    result's dtype and shape, the product goes there. cuBLAS computes float32 and float64 on a real
    GPU that has it; `python -m cudasync info` says so."""
    left, right = array(x1, "matmul"), array(x2, "matmul")
    made: Array
    if out is None:
        made = product(left, right, user_frame())
    else:
        made = product_into(left, right, out, user_frame())
    return made


def vecdot(x1: Array, x2: Array, /, *, axis: int = -1, out: Array | None = None) -> Array:
    """The sum of products along a common axis, counted from the last; the other axes broadcast.
    `out` as for `matmul`."""
    _accept("vecdot", x1, x2)
    rank = min(x1.ndim, x2.ndim)
    at = whole(axis, "an axis")
    if not -rank <= at < 0:
        raise IndexError(
            f"vecdot of shapes {x1.shape} and {x2.shape}: axis {axis} is not an axis of both; "
            f"give a negative axis, counted from the last (-1)"
        )
    if x1.shape[at] != x2.shape[at]:
        raise ValueError(f"vecdot of shapes {x1.shape} and {x2.shape}: axis {axis} differs")
    shape = broadcast_shapes(x1.shape, x2.shape)
    left, right = (_at_end(broadcast_to(each, shape), at) for each in (x1, x2))
    row, column = left[..., None, :], right[..., None]
    if out is None:
        made: Array = product(row, column, user_frame())
        return made[..., 0, 0]
    check_out(out, left.shape[:-1], x1.layout, x2.layout, "vecdot")
    product_into(row, column, out[..., None, None], user_frame())
    return out


def _at_end(x: Array, axis: int) -> Array:
    place = axis % x.ndim
    return x._permuted((*(i for i in range(x.ndim) if i != place), place))


def tensordot(
    x1: Array,
    x2: Array,
    /,
    *,
    axes: int | tuple[Sequence[int], Sequence[int]] = 2,
    out: Array | None = None,
) -> Array:
    """Products summed over axes of both: the last `axes` of `x1` with the first of `x2`, or the
    axes in two sequences, pair by pair. The result has the other axes, those of `x1` first. `out`
    as for `matmul`."""
    _accept("tensordot", x1, x2)
    of_left, of_right = _summed(x1, x2, axes)
    lengths = [x1.shape[i] for i in of_left]
    if lengths != [x2.shape[i] for i in of_right]:
        raise ValueError(
            f"tensordot of shapes {x1.shape} and {x2.shape}: axes {of_left} of the one and "
            f"{of_right} of the other differ in length"
        )
    left_over = [i for i in range(x1.ndim) if i not in of_left]
    right_over = [i for i in range(x2.ndim) if i not in of_right]
    rows, columns = [x1.shape[i] for i in left_over], [x2.shape[i] for i in right_over]
    depth = math.prod(lengths)
    shape = (*rows, *columns)
    check_result(shape, x1.layout, x2.layout)
    if out is not None:
        check_out(out, shape, x1.layout, x2.layout, "tensordot")
    left = reshape(x1._permuted((*left_over, *of_left)), (math.prod(rows), depth))
    right = reshape(x2._permuted((*of_right, *right_over)), (depth, math.prod(columns)))
    if out is not None and out.is_contiguous:
        flat = out.reshape(math.prod(rows), math.prod(columns))
        product_into(left, right, flat, user_frame())
        return out
    made: Array = reshape(product(left, right, user_frame()), shape)
    if out is None:
        return made
    COPY.into((made,), out, user_frame())
    return out


def _summed(x1: Array, x2: Array, axes: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    if isinstance(axes, (tuple, list)):
        if len(axes) != 2:
            raise ValueError(f"tensordot takes a number of axes or two sequences, not {axes!r}")
        first, second = as_axes(axes[0], x1.ndim), as_axes(axes[1], x2.ndim)
        if len(first) != len(second):
            raise ValueError(f"tensordot takes equally many axes of both arrays, not {axes!r}")
        return first, second
    count = whole(axes, "a number of axes")
    if not 0 <= count <= min(x1.ndim, x2.ndim):
        raise ValueError(
            f"tensordot of shapes {x1.shape} and {x2.shape} over {count} axes: the arrays have "
            f"fewer"
        )
    return tuple(range(x1.ndim - count, x1.ndim)), tuple(range(count))


def _accept(name: str, x1: Any, x2: Any) -> None:
    """Raise as `matmul` would for these arrays, before anything is copied for it."""
    for each in (x1, x2):
        array(each, name)
    check_pair(x1.layout, x2.layout, name)
