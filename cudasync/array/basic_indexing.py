"""Floor 4. Basic indexing: from an index to the offset, shape and strides of a view."""

from __future__ import annotations

import math
import operator
from typing import Any

_BASIC = (int, slice, type(None), type(Ellipsis))


def view(
    shape: tuple[int, ...], strides: tuple[int, ...], index: Any
) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
    """Offset in bytes, shape and strides of `array[index]`, as NumPy has them.

    Raises IndexError for an index beyond the shape, TypeError for anything but integers, slices,
    Ellipsis and None.
    """
    items = index if isinstance(index, tuple) else (index,)
    taken = sum(1 for item in items if item is not None and item is not Ellipsis)
    if taken > len(shape):
        raise IndexError(f"{taken} indices for an array of {len(shape)} dimensions")
    if sum(1 for item in items if item is Ellipsis) > 1:
        raise IndexError("an index can have only one '...'")
    if not any(item is Ellipsis for item in items):
        items = (*items, Ellipsis)
    offset = 0
    new_shape: list[int] = []
    new_strides: list[int] = []
    axis = 0
    for item in items:
        if item is None:
            new_shape.append(1)
            new_strides.append(0)
        elif item is Ellipsis:
            skipped = len(shape) - taken
            new_shape += shape[axis : axis + skipped]
            new_strides += strides[axis : axis + skipped]
            axis += skipped
        elif isinstance(item, slice):
            start, _, step = item.indices(shape[axis])
            length = len(range(*item.indices(shape[axis])))
            offset += start * strides[axis] if length else 0
            new_shape.append(length)
            new_strides.append(step * strides[axis])
            axis += 1
        else:
            offset += _position(item, shape[axis], axis) * strides[axis]
            axis += 1
    return offset, tuple(new_shape), tuple(new_strides)


def has_arrays(index: Any) -> bool:
    """True if an index has more than integers, slices, Ellipsis and None: lists, arrays, masks."""
    if type(index) is tuple:
        return any(map(_is_array, index))
    return _is_array(index)


def _is_array(item: Any) -> bool:
    if item.__class__ in _BASIC:
        return False
    # A zero-dimensional array of one integer is an ordinary index.
    is_array = hasattr(item, "dtype") and (getattr(item, "ndim", 0) > 0 or item.dtype.kind == "b")
    return is_array or isinstance(item, list)


def fill_shape(shape: tuple[int, ...], size: int) -> tuple[int, ...]:
    """`shape` with its one -1, if any, replaced; ValueError unless it holds `size` elements."""
    unknown = [i for i, n in enumerate(shape) if n == -1]
    known = math.prod(n for n in shape if n != -1)
    if len(unknown) == 1 and known > 0 and size % known == 0:
        shape = tuple(size // known if n == -1 else n for n in shape)
    if len(unknown) > 1 or any(n < 0 for n in shape) or math.prod(shape) != size:
        raise ValueError(f"{size} elements do not fit the shape {shape}")
    return shape


def _position(item: Any, length: int, axis: int) -> int:
    try:
        position = operator.index(item)
    except TypeError:
        raise TypeError(
            "an index takes integers, slices, '...', None and arrays of integers or bool, not "
            f"{type(item).__name__}"
        ) from None
    if not -length <= position < length:
        raise IndexError(f"index {position} is outside axis {axis} of length {length}")
    return position % length
