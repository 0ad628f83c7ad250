"""Floor 4, the standard's namespace: searching. All return at once, unless they say otherwise."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from cudasync.array.advanced_indexing.boolean_masks import true_places
from cudasync.array.advanced_indexing.operation import searched, taken
from cudasync.array.dtypes.promotion import result_type
from cudasync.array.dtypes.supported import BOOL, INT64
from cudasync.array.elementwise.operations import OPERATIONS, cast_to
from cudasync.array.reductions.operation import array, reduced
from cudasync.xp.creation import empty
from cudasync.xp.manipulation import reshape
from cudasync.xp.parameter_checks import as_axis
from cudasync.xp.statistical import axes_given

if TYPE_CHECKING:
    from types import FrameType

_getframe = sys._getframe


def argmax(x: Any, /, *, axis: int | None = None, keepdims: bool = False, out: Any = None) -> Any:
    """The place of the largest element, as int64: the first of equal ones, or the first NaN if
    there is one. Along all axes it is the index in the flattened array. ValueError for no
    elements."""
    return _place("argmax", x, axis, keepdims, out, _getframe(1))


def argmin(x: Any, /, *, axis: int | None = None, keepdims: bool = False, out: Any = None) -> Any:
    """The place of the smallest element; see `argmax`."""
    return _place("argmin", x, axis, keepdims, out, _getframe(1))


def _place(name: str, x: Any, axis: int | None, keepdims: bool, out: Any, frame: FrameType) -> Any:
    array(x, name)
    axes = axes_given(x, None) if axis is None else (as_axis(axis, len(x.shape)),)
    return reduced(name, (x,), frame, axes=axes, keeps_dims=bool(keepdims), out=out)


def count_nonzero(x: Any, /, *, axis: Any = None, keepdims: bool = False, out: Any = None) -> Any:
    """The number of elements that are not 0, as int64; NaN is not 0."""
    axes = axes_given(array(x, "count_nonzero"), axis)
    keeps = bool(keepdims)
    return reduced("count_nonzero", (x,), _getframe(1), axes=axes, keeps_dims=keeps, out=out)


def nonzero(x: Any, /) -> tuple[Any, ...]:
    """The places of the elements that are not 0: an int64 array for each axis, in C order.

    Their number is data, so this waits for `x`. ValueError for an array of no dimensions.
    """
    frame = _getframe(1)
    if not array(x, "nonzero").shape:
        raise ValueError("nonzero takes 1 or more dimensions: reshape the array")
    if not x.size:
        return tuple(empty((0,), dtype=INT64, device=x.device) for _ in x.shape)
    kept = cast_to(BOOL)((reshape(x, (-1,)),), frame)
    places = true_places(kept, frame)
    found = []
    for length in reversed(x.shape[1:]):
        found.append(OPERATIONS["remainder"]((places, length), frame))
        places = OPERATIONS["floor_divide"]((places, length), frame)
    return (places, *reversed(found))


def searchsorted(x1: Any, x2: Any, /, *, side: str = "left", sorter: Any = None) -> Any:
    """For each element of `x2`, the place in `x1`, sorted and of one dimension, before which it can
    be inserted, as int64. The first such place, or the last if `side` is "right".

    `sorter` has the places of `x1` in order. NaN counts as the largest.
    """
    frame = _getframe(1)
    array(x2, "searchsorted")
    if len(array(x1, "searchsorted").shape) != 1:
        raise ValueError(f"searchsorted takes a first array of 1 dimension, not {len(x1.shape)}")
    if side not in ("left", "right"):
        raise ValueError(f"side of searchsorted must be 'left' or 'right', not {side!r}")
    if x1.layout.device != x2.layout.device:
        raise ValueError(
            f"searchsorted takes arrays on one device, not on {x1.layout.device!r} and "
            f"{x2.layout.device!r}: move one with x.to_device(...)"
        )
    dtype = result_type(x1, x2)
    if sorter is not None:
        if array(sorter, "searchsorted").shape != x1.shape:
            raise ValueError(
                f"the sorter has shape {sorter.shape}, the array {x1.shape}: give equal shapes"
            )
        x1 = taken(x1, cast_to(INT64)((sorter,), frame), 0, frame) if x1.size else x1
    row, values = (
        each if each.dtype == dtype else cast_to(dtype)((each,), frame) for each in (x1, x2)
    )
    return searched(row, values, frame, is_right=side == "right")
