"""Floor 4, advanced indexing. `x[index]` and `x[index] = value` with arrays in the index.

All but masks return at once: the number of elements that a mask selects is data.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from cudasync.array.advanced_indexing.flat_indices import places, unwritten
from cudasync.array.advanced_indexing.index import picked
from cudasync.array.advanced_indexing.operation import taken
from cudasync.array.advanced_indexing.row_assignment import write
from cudasync.array.dtypes.supported import supported
from cudasync.array.elementwise.operation import COPY
from cudasync.array.elementwise.operations import OPERATIONS, cast_to
from cudasync.array.operators.assignment import accepted
from cudasync.array.sorting.operation import sort_rows

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from cudasync.array.advanced_indexing.index import Picked


def get(x: Any, index: Any, frame: FrameType, upload: Callable[..., Any]) -> Any:
    """A new array with these elements."""
    chosen = picked(x, index, upload)
    at = places(*chosen.indices(), frame, is_written=False)
    view, folded, shape = _arranged(chosen, at.shape)
    rows = (view if view.is_contiguous else view.copy()).reshape(folded)
    found = taken(rows, at.reshape((at.size,)), 1, frame)
    return found.reshape(shape)


def put(x: Any, index: Any, value: Any, frame: FrameType, upload: Callable[..., Any]) -> None:
    """Write `value`, which broadcasts, to these elements; of equal indices the last one counts."""
    if x.is_read_only:
        raise ValueError("the assigned array is read-only: use x.copy()")
    chosen = picked(x, index, upload)
    if not chosen.view.layout.is_at_own_place():
        raise ValueError("elements of the assigned array share memory: use x.copy()")
    dtype = supported(x.dtype)
    value = accepted(value, dtype, x.device, upload)
    if chosen.is_mask and not getattr(value, "shape", ()):
        _fill(chosen, value, frame)
        return
    at = places(*chosen.indices(), frame, is_written=True)
    view, folded, shape = _arranged(chosen, at.shape)
    values = unwritten(x, dtype, shape)
    cast_to(dtype).into((value,), values, frame)
    if not values.size:
        return
    at = at.reshape((at.size,))
    order = None
    if not chosen.is_mask:
        order = sort_rows(at, frame, gives_places=True, is_descending=False)
        at = taken(at, order, 0, frame)
    target = view if view.is_contiguous else view.copy()
    write(target.reshape(folded), at, order, values, frame)
    if target is not view:
        COPY.into((target,), view, frame)


def _fill(chosen: Picked, value: Any, frame: FrameType) -> None:
    """Write one value where the mask is true: this needs no count, so nothing waits."""
    view, mask, (axis,) = chosen.view, chosen.arrays[0], chosen.axes
    if hasattr(value, "layout"):
        value = cast_to(supported(view.dtype))((value,), frame)
    if view.size:
        behind = (None,) * (view.ndim - axis - mask.ndim)
        OPERATIONS["where"].into((mask[(..., *behind)], value, view), view, frame)


def _arranged(
    chosen: Picked, shape: tuple[int, ...]
) -> tuple[Any, tuple[int, int, int], tuple[int, ...]]:
    """The view with its indexed axes side by side; its shape with the axes before, the indexed and
    those behind folded to one each; the shape of the result, with the arrays' shape in place of the
    indexed axes."""
    view, axes = chosen.view, chosen.picked_axes()
    first = axes[0] if chosen.is_in_place else 0
    rest = [axis for axis in range(view.ndim) if axis not in axes]
    order = (*rest[:first], *axes, *rest[first:])
    if order != tuple(range(view.ndim)):
        view = view._permuted(order)
    before, behind = view.shape[:first], view.shape[first + len(axes) :]
    length = math.prod(view.shape[first : first + len(axes)])
    folded = math.prod(before), length, math.prod(behind)
    return view, folded, (*before, *shape, *behind)
