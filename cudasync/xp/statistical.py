"""Floor 4, the standard's namespace: statistical functions, each a few launches.

All return at once with a new array. `axis` is None for all axes, one axis or a tuple of axes, each
counted from the front or the back; with `keepdims` they stay, with length 1. IndexError for an axis
beyond the dimensions, ValueError for a duplicate. With `out`, an array of the result's dtype and
shape, reductions write to that array and return it.

The same elements in the same layout give the same bits every time. Sums of floats use trees: the
error of a sum is at most 30 roundings, twice as much beyond 16384 elements, relative to the sum of
absolute values. float16 is accumulated in float32.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from cudasync.array.dtypes.supported import supported
from cudasync.array.reductions.operation import array, reduced, variance
from cudasync.array.scans.operation import scanned
from cudasync.xp.parameter_checks import as_axes, as_axis

if TYPE_CHECKING:
    from types import FrameType

    from numpy.typing import DTypeLike

_getframe = sys._getframe


def sum(
    x: Any,
    /,
    *,
    axis: Any = None,
    dtype: DTypeLike | None = None,
    keepdims: bool = False,
    out: Any = None,
) -> Any:
    """The sum of elements, 0 for none; integers wrap.

    Integers and bool are summed as int64, unsigned ones as uint64, unless `dtype` says otherwise.
    """
    return _total("sum", x, axis, dtype, keepdims, out, _getframe(1))


def prod(
    x: Any,
    /,
    *,
    axis: Any = None,
    dtype: DTypeLike | None = None,
    keepdims: bool = False,
    out: Any = None,
) -> Any:
    """The product of elements, 1 for none; dtypes as in `sum`."""
    return _total("prod", x, axis, dtype, keepdims, out, _getframe(1))


def _total(
    name: str,
    x: Any,
    axis: Any,
    dtype: DTypeLike | None,
    keepdims: bool,
    out: Any,
    frame: FrameType,
) -> Any:
    axes = axes_given(array(x, name), axis)
    kind = None if dtype is None else supported(dtype)
    return reduced(name, (x,), frame, axes=axes, keeps_dims=bool(keepdims), dtype=kind, out=out)


def max(x: Any, /, *, axis: Any = None, keepdims: bool = False, out: Any = None) -> Any:
    """The largest element; NaN if there is one. ValueError for no elements."""
    axes = axes_given(array(x, "max"), axis)
    return reduced("max", (x,), _getframe(1), axes=axes, keeps_dims=bool(keepdims), out=out)


def min(x: Any, /, *, axis: Any = None, keepdims: bool = False, out: Any = None) -> Any:
    """The smallest element; NaN if there is one. ValueError for no elements."""
    axes = axes_given(array(x, "min"), axis)
    return reduced("min", (x,), _getframe(1), axes=axes, keeps_dims=bool(keepdims), out=out)


def mean(x: Any, /, *, axis: Any = None, keepdims: bool = False, out: Any = None) -> Any:
    """The mean of floats; NaN for none."""
    axes = axes_given(array(x, "mean"), axis)
    return reduced("mean", (x,), _getframe(1), axes=axes, keeps_dims=bool(keepdims), out=out)


def var(
    x: Any,
    /,
    *,
    axis: Any = None,
    correction: float = 0.0,
    keepdims: bool = False,
    out: Any = None,
) -> Any:
    """The variance of floats: the sum of squared differences from the mean, divided by the number
    of elements minus `correction`; NaN for none."""
    return _spread("var", x, axis, correction, keepdims, out, _getframe(1))


def std(
    x: Any,
    /,
    *,
    axis: Any = None,
    correction: float = 0.0,
    keepdims: bool = False,
    out: Any = None,
) -> Any:
    """The square root of `var`."""
    return _spread("std", x, axis, correction, keepdims, out, _getframe(1))


def _spread(
    name: str,
    x: Any,
    axis: Any,
    correction: float,
    keepdims: bool,
    out: Any,
    frame: FrameType,
) -> Any:
    axes = axes_given(array(x, name), axis)
    by = float(correction)
    keeps = bool(keepdims)
    return variance(name, x, frame, axes=axes, keeps_dims=keeps, correction=by, out=out)


def cumulative_sum(
    x: Any,
    /,
    *,
    axis: int | None = None,
    dtype: DTypeLike | None = None,
    include_initial: bool = False,
    out: Any = None,
) -> Any:
    """The sums of elements up to each along an axis. Only an array of one dimension may leave the
    axis out.

    Dtypes as in `sum`. With `include_initial` a 0 comes first, so there is one result more.
    """
    return _running("sum", x, axis, dtype, include_initial, out, _getframe(1))


def cumulative_prod(
    x: Any,
    /,
    *,
    axis: int | None = None,
    dtype: DTypeLike | None = None,
    include_initial: bool = False,
    out: Any = None,
) -> Any:
    """The products of elements up to each along an axis; see `cumulative_sum`."""
    return _running("prod", x, axis, dtype, include_initial, out, _getframe(1))


def _running(
    name: str,
    x: Any,
    axis: int | None,
    dtype: DTypeLike | None,
    initial: bool,
    out: Any,
    frame: FrameType,
) -> Any:
    rank = len(array(x, f"cumulative_{name}").shape)
    if axis is None and rank != 1:
        raise ValueError(f"accumulating an array of {rank} dimensions needs an axis: give axis=")
    at = as_axis(0 if axis is None else axis, rank)
    kind = None if dtype is None else supported(dtype)
    return scanned(name, x, frame, axis=at, dtype=kind, has_initial=bool(initial), out=out)


def axes_given(x: Any, axis: Any) -> tuple[int, ...]:
    """The axes, counted from the front."""
    return tuple(range(len(x.shape))) if axis is None else as_axes(axis, len(x.shape))
