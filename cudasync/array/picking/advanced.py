"""Floor 4, picking. `x[index]` where the index has arrays: of integers, or of bool.

NumPy's rules. An array of bool stands for the places where it is true; how many these are is data,
so it waits for that array. Arrays of integers do not wait: one that is beyond the axis takes the
nearest element, as in `take`. Integers beside arrays count as arrays.
"""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from cudasync.array import indexing
from cudasync.array.dtypes.supported import BOOL, INT64
from cudasync.array.elementwise.operations import OPERATIONS, cast_to
from cudasync.array.indexing import is_array
from cudasync.array.picking.operation import taken, where_kept
from cudasync.array.scans.operation import scanned

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType


@dataclass
class _Picked:
    """An array of the index: the places that it names, over so many axes as one."""

    places: Any
    axes: int


def picked(x: Any, index: Any, frame: FrameType, upload: Callable[..., Any]) -> Any:
    """A new array with what `index` names; `upload` makes an array of host data.

    IndexError for an axis too many, a mask of another shape, shapes that do not broadcast, and
    an axis without elements that some are to be taken of; TypeError for arrays of floats.
    """
    items = _expanded(x, index, upload)
    groups: list[_Picked] = []
    basic: list[Any] = []
    axis = 0
    for item in items:
        if item is None:
            basic.append(None)
            continue
        if is_array(item):
            group = _of_mask(x, item, axis, frame) if item.dtype == BOOL else _of_integers(item)
            groups.append(group)
            basic += [slice(None)] * group.axes
            axis += group.axes
        else:
            basic.append(item)
            axis += 1
    at, lead = _where_they_go(items)
    view = x._viewed(*indexing.view(x.shape, x.strides, tuple(basic)))
    own = _axes_of(items, groups)
    kept = [each for each in range(view.ndim) if each not in own]
    order = (*kept[:at], *own, *kept[at:]) if lead else (*own, *kept)
    at = at if lead else 0
    turned = view._permuted(order)
    lengths = turned.shape[at : at + len(own)]
    places = _together(groups, lengths, frame)
    before, after = turned.shape[:at], turned.shape[at + len(own) :]
    whole = turned if turned.is_contiguous else turned.copy()
    flat = whole.reshape((*before, math.prod(lengths), *after))
    shape = (*before, *places.shape, *after)
    if places.size and not math.prod(lengths):
        raise IndexError("an index takes elements of an axis that has none")
    row = places if places.is_contiguous else places.copy()
    return taken(flat, row.reshape((row.size,)), at, frame).reshape(shape)


def filled(x: Any, index: Any, value: Any, frame: FrameType, upload: Callable[..., Any]) -> None:
    """`x[mask] = value`, in order with all else: a number, or what broadcasts to the elements that
    are named.

    Where `value` has one element for each of these, it waits for the mask. TypeError for an index
    of integers, of which two may name the same element.
    """
    mask = index[0] if isinstance(index, tuple) and len(index) == 1 else index
    mask = _array(mask, x, upload) if is_array(mask) else mask
    if not is_array(mask) or mask.dtype != BOOL:
        raise TypeError(
            "only an array of bool, by itself, can be assigned to: for places, write "
            "x[...] = xp.where(mask, values, x), or a kernel"
        )
    _refuse_other_shape(x, mask, 0)
    rest = x.ndim - mask.ndim
    wide = mask if not rest else _contiguous(mask).reshape((*mask.shape, *(1,) * rest))
    if hasattr(type(value), "__cudasync_plan__") or np.ndim(value):
        value = (
            value
            if hasattr(type(value), "__cudasync_plan__")
            else upload(np.asarray(value, dtype=x.dtype), device=x.device)
        )
        if value.dtype.kind != x.dtype.kind:
            raise TypeError(f"{value.dtype} can not be assigned to {x.dtype}: cast by xp.astype")
        if value.dtype != x.dtype:
            value = cast_to(x.dtype)((value,), frame)
        if value.ndim > rest and not (value.ndim == rest + 1 and value.shape[0] == 1):
            value = _spread(x, mask, value, rest, frame)
        elif value.ndim > rest:
            value = value._viewed(0, value.shape[1:], value.strides[1:])
    elif isinstance(value, np.generic):
        value = value.astype(x.dtype)
    OPERATIONS["where"].into((wide, value, x), x, frame)


def _spread(x: Any, mask: Any, value: Any, rest: int, frame: FrameType) -> Any:
    """`value`, which has an element for each true one of `mask`, at their places in x's shape."""
    before = _counted(mask, frame)
    count = int(before[-1]) if mask.size else 0
    if value.ndim != rest + 1 or value.shape[0] != count:
        raise ValueError(
            f"{count} elements are assigned to, each of shape {x.shape[mask.ndim :]}, and the "
            f"value has shape {value.shape}"
        )
    if not count:
        return x
    ranks = OPERATIONS["subtract"]((before, 1), frame)
    # Before the first true one the rank is -1, which would be the last.
    ranks = OPERATIONS["maximum"]((ranks, 0), frame)
    spread = taken(_contiguous(value), ranks, 0, frame)
    return spread.reshape((*mask.shape, *value.shape[1:]))


def _array(item: Any, x: Any, upload: Callable[..., Any]) -> Any:
    if not hasattr(type(item), "__cudasync_plan__"):
        host = np.asarray(item)
        item = upload(host.astype(np.int64) if not host.size else host, device=x.device)
    if item.layout.device != x.layout.device:
        raise ValueError(
            f"the array is on {x.layout.device!r} and its index on {item.layout.device!r}: move "
            "one by x.to_device(...)"
        )
    if item.dtype.kind not in "iub":
        raise IndexError(f"an index is of integers or bool, not of {item.dtype}")
    return item


def _expanded(x: Any, index: Any, upload: Callable[..., Any]) -> list[Any]:
    """The items, one for each axis or mask, without '...'; integers as arrays of no dimensions."""
    items = list(index) if isinstance(index, tuple) else [index]
    items = [_array(each, x, upload) if is_array(each) else each for each in items]
    if sum(each is Ellipsis for each in items) > 1:
        raise IndexError("an index can have only one '...'")
    named = sum(
        each.ndim if is_array(each) and each.dtype == BOOL else 1
        for each in items
        if each is not None and each is not Ellipsis
    )
    if named > x.ndim:
        raise IndexError(f"{named} indices for an array of {x.ndim} dimensions")
    at = next((at for at, each in enumerate(items) if each is Ellipsis), len(items))
    items[at : at + 1] = [slice(None)] * (x.ndim - named)
    axis = 0
    for at, each in enumerate(items):
        if each is None:
            continue
        if is_array(each):
            axis += each.ndim if each.dtype == BOOL else 1
            continue
        if not isinstance(each, slice):
            length = x.shape[axis]
            position = operator.index(each)
            if not -length <= position < length:
                raise IndexError(f"index {position} is beyond axis {axis} of length {length}")
            items[at] = upload(np.asarray(position % length), device=x.device)
        axis += 1
    return items


def _where_they_go(items: list[Any]) -> tuple[int, bool]:
    """How many axes of the result are before those of the arrays, if these stand side by side."""
    places = [at for at, each in enumerate(items) if is_array(each)]
    is_one = places[-1] - places[0] + 1 == len(places)
    return places[0], is_one


def _axes_of(items: list[Any], groups: list[_Picked]) -> list[int]:
    """The axes, of what the basic part of the index leaves, that the arrays stand for."""
    found: list[int] = []
    axis = 0
    each = iter(groups)
    for item in items:
        count = next(each).axes if is_array(item) else 1
        if is_array(item):
            found += range(axis, axis + count)
        axis += count
    return found


def _of_integers(item: Any) -> _Picked:
    return _Picked(item, 1)


def _of_mask(x: Any, mask: Any, axis: int, frame: FrameType) -> _Picked:
    if not mask.ndim:
        raise IndexError("an index of bool has one dimension and more")
    _refuse_other_shape(x, mask, axis)
    before = _counted(mask, frame)
    count = int(before[-1]) if mask.size else 0
    flat = _contiguous(mask).reshape((mask.size,))
    return _Picked(where_kept(flat, before, count, frame), mask.ndim)


def _refuse_other_shape(x: Any, mask: Any, axis: int) -> None:
    if mask.shape != x.shape[axis : axis + mask.ndim]:
        raise IndexError(
            f"the index of bool has shape {mask.shape}, what it is for "
            f"{x.shape[axis : axis + mask.ndim]}"
        )


def _counted(mask: Any, frame: FrameType) -> Any:
    """How many elements of the mask are true up to each, in C order."""
    flat = _contiguous(mask).reshape((mask.size,))
    return scanned("sum", flat, frame, axis=0, dtype=None, has_initial=False)


def _contiguous(x: Any) -> Any:
    return x if x.is_contiguous else x.copy()


def _together(groups: list[_Picked], lengths: tuple[int, ...], frame: FrameType) -> Any:
    """The places that all arrays name, in the axes that they stand for as one."""
    try:
        np.broadcast_shapes(*(each.places.shape for each in groups))
    except ValueError:
        shapes = ", ".join(str(each.places.shape) for each in groups)
        raise IndexError(f"arrays of an index broadcast together, not of shapes {shapes}") from None
    total = None
    axis = 0
    for group in groups:
        length = math.prod(lengths[axis : axis + group.axes])
        behind = math.prod(lengths[axis + group.axes :])
        axis += group.axes
        places = group.places
        places = places if places.dtype == INT64 else cast_to(INT64)((places,), frame)
        if len(groups) > 1:
            places = _within(places, length, frame)
        if behind != 1 and len(groups) > 1:
            places = OPERATIONS["multiply"]((places, behind), frame)
        total = places if total is None else OPERATIONS["add"]((total, places), frame)
    return total


def _within(places: Any, length: int, frame: FrameType) -> Any:
    """Places from the end counted from the start, and none beyond the axis."""
    from_end = OPERATIONS["less"]((places, 0), frame)
    moved = OPERATIONS["where"](
        (from_end, OPERATIONS["add"]((places, length), frame), places), frame
    )
    low = OPERATIONS["maximum"]((moved, 0), frame)
    return OPERATIONS["minimum"]((low, max(0, length - 1)), frame)
