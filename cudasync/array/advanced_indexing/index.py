"""Floor 4, advanced indexing. The meaning of an index with arrays: a view, and its indexed axes.

The rules are NumPy's. The index without its arrays gives a view; a mask takes as many axes as it
has. If all arrays and integers are adjacent, their dimensions stand in that place of the result;
otherwise they come first.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from cudasync.array.advanced_indexing.boolean_masks import true_places
from cudasync.array.elementwise.plan import user_frame
from cudasync.array.expressions.layout import broadcast_shapes

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(slots=True)
class Picked:
    """Some axes of `view`, and the arrays that index them."""

    view: Any
    # The first axis that each array indexes.
    axes: list[int]
    # As in the index: bool or integers.
    arrays: list[Any]
    is_in_place: bool

    @property
    def is_mask(self) -> bool:
        """True for a single mask: its places differ, and it can be written without an index
        array."""
        return len(self.arrays) == 1 and self.arrays[0].dtype.kind == "b"

    def picked_axes(self) -> list[int]:
        return [
            axis + step
            for axis, array in zip(self.axes, self.arrays, strict=True)
            for step in range(_axes_of(array))
        ]

    def indices(self) -> tuple[list[Any], list[int]]:
        """An integer array for each group of axes, and the length of each group. Waits for masks.

        IndexError for shapes that do not broadcast, and for an index into an axis without elements.
        """
        found, lengths = [], []
        for axis, array in zip(self.axes, self.arrays, strict=True):
            is_mask = array.dtype.kind == "b"
            lengths.append(math.prod(self.view.shape[axis : axis + _axes_of(array)]))
            found.append(true_places(array, user_frame()) if is_mask else array)
        try:
            shape = broadcast_shapes(*(each.shape for each in found))
        except ValueError as error:
            raise IndexError(f"the arrays of an index do not broadcast: {error}") from None
        if math.prod(shape) and not all(lengths):
            raise IndexError(f"an array of shape {self.view.shape} is empty, so no index is valid")
        return found, lengths


def picked(x: Any, index: Any, upload: Callable[..., Any]) -> Picked:
    """The elements that `index` selects from `x`; `upload` makes an array of host data. Does not
    wait.

    IndexError for an index that does not fit the shape, and for a host index beyond it; TypeError
    for dtypes other than bool and integers; ValueError for another device.
    """
    items = [_as_array(each) for each in (index if isinstance(index, tuple) else (index,))]
    if sum(1 for item in items if item is Ellipsis) > 1:
        raise IndexError("an index can have only one '...'")
    taken = sum(_axes_taken(item) for item in items)
    if taken > x.ndim:
        raise IndexError(f"{taken} indices for an array of {x.ndim} dimensions")
    basic: list[Any] = []
    axes: list[int] = []
    arrays: list[Any] = []
    advanced: list[int] = []
    # The current axis of the array, and of the view.
    axis = at = 0
    for number, item in enumerate(items):
        count = _axes_taken(item)
        if _is_array(item):
            _fits(item, x.shape[axis : axis + count], axis)
            arrays.append(_on_device(item, x, upload))
            basic += [slice(None)] * count if count else [None]
            axes.append(at)
            advanced.append(number)
            at += max(count, 1)
        elif item is Ellipsis:
            count = x.ndim - taken
            basic += [slice(None)] * count
            at += count
        else:
            basic.append(item)
            if item is None or isinstance(item, slice):
                at += 1
            else:
                advanced.append(number)
        axis += count
    is_in_place = advanced == list(range(advanced[0], advanced[-1] + 1))
    return Picked(x[tuple(basic)], axes, arrays, is_in_place)


def _as_array(item: Any) -> Any:
    """A list as NumPy's array; an empty list becomes an integer array."""
    if isinstance(item, list):
        return np.asarray(item) if item else np.zeros(0, np.int64)
    return item


def _is_array(item: Any) -> bool:
    return hasattr(item, "dtype") and hasattr(item, "ndim")


def _axes_of(array: Any) -> int:
    return max(array.ndim, 1) if array.dtype.kind == "b" else 1


def _axes_taken(item: Any) -> int:
    if item is None or item is Ellipsis:
        return 0
    return item.ndim if _is_array(item) and item.dtype.kind == "b" else 1


def _fits(item: Any, shape: tuple[int, ...], axis: int) -> None:
    """Check the array of an index against the axes of these lengths."""
    if item.dtype.kind not in "biu":
        raise TypeError(
            f"an index array must be of integers or bool, not {item.dtype}: cast with xp.astype"
        )
    if item.dtype.kind == "b":
        if item.shape != shape:
            raise IndexError(f"a mask of shape {item.shape} does not fit shape {shape}")
    elif not hasattr(type(item), "__cudasync_plan__") and item.size:
        (length,) = shape
        for index in (int(item.min()), int(item.max())):
            if not -length <= index < length:
                raise IndexError(f"index {index} is outside axis {axis} of length {length}")


def _on_device(item: Any, x: Any, upload: Callable[..., Any]) -> Any:
    if not hasattr(type(item), "__cudasync_plan__"):
        return upload(np.asarray(item), device=x.device)
    if item.layout.device != x.layout.device:
        raise ValueError(
            f"the array is on {x.layout.device!r}, its index on {item.layout.device!r}: "
            "move one with x.to_device(...)"
        )
    # A mask without dimensions indexes an axis of length 1 that is added for it.
    return item[None] if item.dtype.kind == "b" and not item.ndim else item
