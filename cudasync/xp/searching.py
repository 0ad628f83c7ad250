"""Floor 4, the standard's namespace: searching. All return at once, unless they say otherwise."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from cudasync.array.reductions.operation import array, reduced
from cudasync.xp.places import as_axis
from cudasync.xp.statistical import axes_given

if TYPE_CHECKING:
    from types import FrameType

_getframe = sys._getframe


def argmax(x: Any, /, *, axis: int | None = None, keepdims: bool = False) -> Any:
    """Where the largest element is, as int64: the first of equal ones, the first NaN if there is
    one. Along all axes the index is that of the flattened array. ValueError of no elements."""
    return _place("argmax", x, axis, keepdims, _getframe(1))


def argmin(x: Any, /, *, axis: int | None = None, keepdims: bool = False) -> Any:
    """Where the smallest element is; see `argmax`."""
    return _place("argmin", x, axis, keepdims, _getframe(1))


def _place(name: str, x: Any, axis: int | None, keepdims: bool, frame: FrameType) -> Any:
    array(x, name)
    axes = axes_given(x, None) if axis is None else (as_axis(axis, len(x.shape)),)
    return reduced(name, (x,), frame, axes=axes, keeps_dims=bool(keepdims))


def count_nonzero(x: Any, /, *, axis: Any = None, keepdims: bool = False) -> Any:
    """How many elements are not 0, as int64; NaN is not."""
    axes = axes_given(array(x, "count_nonzero"), axis)
    return reduced("count_nonzero", (x,), _getframe(1), axes=axes, keeps_dims=bool(keepdims))
