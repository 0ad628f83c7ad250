"""Floor 4, the standard's namespace: matrices made by the places of their elements."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from cudasync.array.dtypes.supported import DEFAULT_FLOAT, INT64, supported
from cudasync.array.elementwise.operation import Operation
from cudasync.array.elementwise.plan import user_frame
from cudasync.array.expressions.tree import Input, Scalar, apply, cast
from cudasync.array.functions.table import FUNCTIONS
from cudasync.array.memory.limits import check_size
from cudasync.xp.parameter_checks import as_shape, place, whole
from cudasync.xp.sequences import arange

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import DTypeLike

    from cudasync.array.array import Array
    from cudasync.array.dtypes.supported import DType
    from cudasync.array.elementwise.expression_builder import Operand
    from cudasync.array.expressions.tree import Expression


def eye(
    n_rows: int,
    n_cols: int | None = None,
    /,
    *,
    k: int = 0,
    dtype: DTypeLike | None = None,
    device: Any = None,
) -> Array:
    """A matrix with ones on the diagonal `k` places above the main one, and zeros elsewhere."""
    kind = DEFAULT_FLOAT if dtype is None else supported(dtype)
    shape = as_shape((n_rows, n_rows if n_cols is None else n_cols))
    where, diagonal = place(device), whole(k, "the number of a diagonal")
    check_size(shape, shape[0] * shape[1] * kind.itemsize, where)
    rows, columns = _numbered(shape, where)
    made: Array = _diagonal(kind)((rows, columns, diagonal), user_frame())
    return made


def _numbered(shape: tuple[int, ...], device: Any) -> tuple[Array, Array]:
    """The numbers of the rows, as a column, and those of the columns."""
    rows, columns = (arange(each, device=device) for each in shape[-2:])
    return rows[:, None], columns


@cache
def _diagonal(dtype: DType) -> Operation:
    on = apply(FUNCTIONS["add"], Input(0, INT64), Scalar(2, INT64))
    tree = cast(apply(FUNCTIONS["equal"], on, Input(1, INT64)), dtype)
    return Operation("eye", lambda operands: tree)


def tril(x: Array, /, *, k: int = 0) -> Array:
    """The matrices in the last two dimensions, with zeros above the diagonal `k`."""
    return _triangle(x, k, "tril")


def triu(x: Array, /, *, k: int = 0) -> Array:
    """The matrices in the last two dimensions, with zeros below the diagonal `k`."""
    return _triangle(x, k, "triu")


def _triangle(x: Array, k: int, name: str) -> Array:
    if x.ndim < 2:
        raise ValueError(f"{name} takes 2 or more dimensions, the array has {x.ndim}")
    rows, columns = _numbered(x.shape, x.device)
    zero = x.dtype.type(0)
    made: Array = _triangles(name)((x, rows, columns, k, zero), user_frame())
    return made


@cache
def _triangles(name: str) -> Operation:
    def build(operands: Sequence[Operand]) -> Expression:
        dtype = operands[0]
        assert isinstance(dtype, np.dtype)
        border = apply(FUNCTIONS["add"], Input(1, INT64), Scalar(3, INT64))
        compare = FUNCTIONS["less_equal" if name == "tril" else "greater_equal"]
        kept = apply(compare, Input(2, INT64), border)
        return apply(FUNCTIONS["where"], kept, Input(0, dtype), Scalar(4, dtype))

    return Operation(name, build)


def meshgrid(*arrays: Array, indexing: str = "xy") -> list[Array]:
    """Coordinate matrices of vectors; with indexing "xy" the first two dimensions are exchanged.

    ValueError for other words, and for arrays that are no vectors.
    """
    if indexing not in ("xy", "ij"):
        raise ValueError(f"indexing must be 'xy' or 'ij', not {indexing!r}")
    if any(each.ndim != 1 for each in arrays):
        raise ValueError("meshgrid takes arrays of 1 dimension: reshape them")
    order = list(range(len(arrays)))
    if indexing == "xy" and len(arrays) > 1:
        order[:2] = [1, 0]
    shape = tuple(arrays[i].shape[0] for i in order)
    made = []
    for i, each in enumerate(arrays):
        axis = order.index(i)
        strides = tuple(each.strides[0] if at == axis else 0 for at in range(len(shape)))
        made.append(each._viewed(0, shape, strides).copy())
    return made
