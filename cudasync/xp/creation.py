"""Floor 4, the standard's namespace: creation. All return at once.

`device` is None for the current one, an ordinal, a `cs.Device` or "cpu". Without a dtype, what
holds a float is float32, an integer int64 and a bool bool. ValueError for a negative shape,
MemoryError for more than the device has.
"""

from __future__ import annotations

import math
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from cudasync.array.array import Array
from cudasync.array.borrowed import from_dlpack as _from_dlpack
from cudasync.array.dtypes.promotion import WEAK, default_dtype, goes_with, in_range
from cudasync.array.dtypes.supported import (
    BOOL,
    DEFAULT_FLOAT,
    DEFAULT_INT,
    FLOAT64,
    INT64,
    supported,
)
from cudasync.array.elementwise.operation import Operation
from cudasync.array.elementwise.operations import cast_to
from cudasync.array.elementwise.plan import user_frame
from cudasync.array.expressions.tree import Index, Input, Scalar, apply, cast
from cudasync.array.functions.table import FUNCTIONS
from cudasync.xp.making import of_host, to_overwrite, unwritten, zeroed
from cudasync.xp.places import as_shape, place

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import DTypeLike

    from cudasync.array.dtypes.supported import DType
    from cudasync.array.elementwise.building import Operand
    from cudasync.array.expressions.tree import Expression


def asarray(
    obj: Any, /, *, dtype: DTypeLike | None = None, device: Any = None, copy: bool | None = None
) -> Array:
    """An array of `obj`: an array, NumPy's or another library's, a number, or nested sequences.

    An array that is right already is returned itself unless `copy` is true. ValueError where
    `copy` is false and it takes one: host data always does.
    """
    kind = None if dtype is None else supported(dtype)
    if isinstance(obj, Array):
        return _of_array(obj, kind, device, copy)
    if hasattr(obj, "__cuda_array_interface__") or _is_elsewhere(obj):
        return _of_array(_from_dlpack(obj), kind, device, copy)
    if copy is False:
        raise ValueError("asarray copies what is on the host: copy=False can not be done")
    host = np.asarray(obj)
    supported(host.dtype)
    return of_host(obj, kind, place(device))


def _of_array(x: Array, dtype: DType | None, device: Any, copy: bool | None) -> Array:
    made = x if device is None else x.to_device(place(device))
    if dtype is not None and dtype != x.dtype:
        made = cast_to(dtype)((made,), user_frame())
    if copy is False and made is not x:
        raise ValueError("another dtype or device takes a copy: copy=False can not be done")
    return made.copy() if copy and made is x else made


def _is_elsewhere(obj: Any) -> bool:
    """True for another library's array that is not on the host."""
    ask = getattr(obj, "__dlpack_device__", None)
    return ask is not None and not isinstance(obj, np.ndarray) and ask()[0] != 1


def from_dlpack(x: Any, /, *, device: Any = None, copy: bool | None = None) -> Array:
    """An array over memory of another library's array on a device; see `cs.from_dlpack`."""
    made = _from_dlpack(x)
    return _of_array(made, None, device, copy)


def empty(shape: Any, *, dtype: DTypeLike | None = None, device: Any = None) -> Array:
    """An array with whatever the memory held."""
    kind = DEFAULT_FLOAT if dtype is None else supported(dtype)
    return unwritten(as_shape(shape), kind, place(device))


def zeros(shape: Any, *, dtype: DTypeLike | None = None, device: Any = None) -> Array:
    """An array of zeros."""
    kind = DEFAULT_FLOAT if dtype is None else supported(dtype)
    return zeroed(as_shape(shape), kind, place(device))


def ones(shape: Any, *, dtype: DTypeLike | None = None, device: Any = None) -> Array:
    """An array of ones."""
    return _filled(as_shape(shape), 1, DEFAULT_FLOAT if dtype is None else supported(dtype), device)


def full(
    shape: Any, fill_value: Any, *, dtype: DTypeLike | None = None, device: Any = None
) -> Array:
    """An array of `fill_value`, a number or an array without dimensions."""
    if isinstance(fill_value, Array):
        if fill_value.shape:
            raise ValueError(f"full takes one value, not an array of shape {fill_value.shape}")
        kind = fill_value.dtype if dtype is None else supported(dtype)
        device = fill_value.device if device is None else device
        return _filled(as_shape(shape), fill_value, kind, device)
    kind = default_dtype(fill_value) if dtype is None else supported(dtype)
    if type(fill_value) in WEAK and type(fill_value) is not bool:
        goes_with(kind, type(fill_value))
        in_range(kind, fill_value)
    return _filled(as_shape(shape), fill_value, kind, device)


def _filled(shape: tuple[int, ...], value: Any, dtype: DType, device: Any) -> Array:
    made = to_overwrite(shape, dtype, place(device))
    cast_to(dtype).into((value,), made, user_frame())
    return made


def empty_like(x: Array, /, *, dtype: DTypeLike | None = None, device: Any = None) -> Array:
    """`empty` with the shape, dtype and device of `x`, where none are given."""
    return empty(x.shape, dtype=x.dtype if dtype is None else dtype, device=_of(x, device))


def zeros_like(x: Array, /, *, dtype: DTypeLike | None = None, device: Any = None) -> Array:
    """`zeros` with the shape, dtype and device of `x`, where none are given."""
    return zeros(x.shape, dtype=x.dtype if dtype is None else dtype, device=_of(x, device))


def ones_like(x: Array, /, *, dtype: DTypeLike | None = None, device: Any = None) -> Array:
    """`ones` with the shape, dtype and device of `x`, where none are given."""
    return ones(x.shape, dtype=x.dtype if dtype is None else dtype, device=_of(x, device))


def full_like(
    x: Array, /, fill_value: Any, *, dtype: DTypeLike | None = None, device: Any = None
) -> Array:
    """`full` with the shape, dtype and device of `x`, where none are given."""
    kind = x.dtype if dtype is None else dtype
    return full(x.shape, fill_value, dtype=kind, device=_of(x, device))


def _of(x: Array, device: Any) -> Any:
    return x.device if device is None else device


def arange(
    start: Any,
    /,
    stop: Any = None,
    step: Any = 1,
    *,
    dtype: DTypeLike | None = None,
    device: Any = None,
) -> Array:
    """`start`, `start + step` and so on up to `stop`, which is left out; from 0 with one number.

    In the dtype that holds all three, unless another is given; floats are computed in float64 and
    then cast. ValueError for a step of 0.
    """
    if stop is None:
        start, stop = 0, start
    if step == 0:
        raise ValueError("the step of arange is 0")
    is_float = any(isinstance(each, (float, np.floating)) for each in (start, stop, step))
    kind = (DEFAULT_FLOAT if is_float else DEFAULT_INT) if dtype is None else supported(dtype)
    if kind == BOOL:
        raise TypeError("arange makes numbers, not bool")
    if kind.kind != "f" and (start != int(start) or step != int(step)):
        raise TypeError(f"arange of {kind} takes whole numbers: make floats and cast them")
    count = max(0, math.ceil((stop - start) / step) if is_float else -((start - stop) // step))
    made = to_overwrite((count,), kind, place(device))
    if not count:
        return made
    number = float if kind.kind == "f" else int
    numbers = (number(start), number(step))
    _counting(kind).into(numbers, made, user_frame())
    return made


@cache
def _counting(dtype: DType) -> Operation:
    """The first number and the distance of the others. Floats are computed in float64."""
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
    """`num` numbers from `start` to `stop` at equal distances, `stop` being one if `endpoint`.

    They are computed in float64 and then cast. ValueError for a negative `num`.
    """
    kind = DEFAULT_FLOAT if dtype is None else supported(dtype)
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
    rows, columns = _numbered(shape, place(device))
    made: Array = _diagonal(kind)((rows, columns, k), user_frame())
    return made


def _numbered(shape: tuple[int, ...], device: Any) -> tuple[Array, Array]:
    """The numbers of the rows, one below the other, and those of the columns."""
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
        raise ValueError(f"{name} takes two dimensions and more, the array has {x.ndim}")
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


def meshgrid(*arrays: Array, indexing: str = "xy") -> tuple[Array, ...]:
    """Coordinate matrices of vectors; with indexing "xy" the first two dimensions are exchanged.

    ValueError for other words, and for arrays that are no vectors.
    """
    if indexing not in ("xy", "ij"):
        raise ValueError(f"indexing is 'xy' or 'ij', not {indexing!r}")
    if any(each.ndim != 1 for each in arrays):
        raise ValueError("meshgrid takes arrays of one dimension")
    order = list(range(len(arrays)))
    if indexing == "xy" and len(arrays) > 1:
        order[:2] = [1, 0]
    shape = tuple(arrays[i].shape[0] for i in order)
    made = []
    for i, each in enumerate(arrays):
        axis = order.index(i)
        strides = tuple(each.strides[0] if at == axis else 0 for at in range(len(shape)))
        made.append(each._viewed(0, shape, strides).copy())
    return tuple(made)
