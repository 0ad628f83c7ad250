"""Floor 4, the standard's namespace: manipulation, by views where possible, else by copies.

All return at once. IndexError for an axis beyond the dimensions, ValueError for shapes that do not
fit.
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Any

from cudasync.array.basic_indexing import fill_shape
from cudasync.array.dtypes.promotion import result_type
from cudasync.array.elementwise.operations import cast_to
from cudasync.array.elementwise.plan import user_frame
from cudasync.array.expressions.layout import (
    broadcast_shapes,
    broadcast_strides,
    reshaped_strides,
)
from cudasync.array.reductions.operation import array
from cudasync.driver.memory.strides import contiguous_strides
from cudasync.xp.initial_contents import unwritten
from cudasync.xp.parameter_checks import as_axes, as_axis, as_shape, whole

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cudasync.array.array import Array


def reshape(x: Array, /, shape: Any, *, copy: bool | None = None) -> Array:
    """Another shape of as many elements, in C order; one size may be -1, and is computed.

    A view where possible, unless `copy` is true. ValueError if `copy` is false and a copy is
    needed.
    """
    given = shape if isinstance(shape, (tuple, list)) else (shape,)
    full = fill_shape(tuple(whole(n, "a length in a shape") for n in given), x.size)
    if copy:
        return x.copy().reshape(full)
    strides = contiguous_strides(full, x.dtype.itemsize)
    if x.size:
        found = reshaped_strides(x.shape, x.strides, full)
        if found is None:
            if copy is False:
                raise ValueError(f"shape {full} needs a copy: leave copy=False out")
            return x.copy().reshape(full)
        strides = found
    return x._viewed(0, full, strides)


def permute_dims(x: Array, /, axes: Any) -> Array:
    """A view with the dimensions in another order."""
    found = as_axes(axes, x.ndim)
    if len(found) != x.ndim:
        raise ValueError(f"permute_dims takes all {x.ndim} axes, not {len(found)}")
    return x._permuted(found)


def matrix_transpose(x: Array, /) -> Array:
    """A view with the last two dimensions exchanged."""
    return x.mT


def moveaxis(x: Array, source: Any, destination: Any, /) -> Array:
    """A view with these dimensions at other places, and the others in their order."""
    of, to = as_axes(source, x.ndim), as_axes(destination, x.ndim)
    if len(of) != len(to):
        raise ValueError(
            f"moveaxis takes equally many sources and destinations, not {len(of)}, {len(to)}"
        )
    order = [axis for axis in range(x.ndim) if axis not in of]
    for place, axis in sorted(zip(to, of, strict=True)):
        order.insert(place, axis)
    return x._permuted(tuple(order))


def expand_dims(x: Array, /, axis: int = 0) -> Array:
    """A view with one more dimension, of length 1, at `axis`."""
    at = as_axis(axis, x.ndim + 1)
    return x[(slice(None),) * at + (None,)]


def squeeze(x: Array, /, axis: Any) -> Array:
    """A view without these dimensions, of length 1; ValueError for any other length."""
    gone = as_axes(axis, x.ndim)
    for each in gone:
        if x.shape[each] != 1:
            raise ValueError(
                f"axis {each} has length {x.shape[each]}: squeeze removes axes of length 1"
            )
    kept = [i for i in range(x.ndim) if i not in gone]
    return x._viewed(0, tuple(x.shape[i] for i in kept), tuple(x.strides[i] for i in kept))


def flip(x: Array, /, *, axis: Any = None) -> Array:
    """A view with the elements in reverse order, along these axes or all."""
    turned = range(x.ndim) if axis is None else as_axes(axis, x.ndim)
    back = slice(None, None, -1)
    return x[tuple(back if i in turned else slice(None) for i in range(x.ndim))]


def broadcast_to(x: Array, /, shape: Any) -> Array:
    """A view of this shape, whose elements share memory; it cannot be written."""
    to = as_shape(shape)
    aligned = (*(1,) * (len(to) - x.ndim), *x.shape)
    if len(aligned) != len(to) or any(a not in (1, b) for a, b in zip(aligned, to, strict=True)):
        raise ValueError(f"shape {x.shape} does not broadcast to {to}")
    return x._viewed(0, to, broadcast_strides(x.shape, x.strides, to))


def broadcast_arrays(*arrays: Array) -> list[Array]:
    """Views of one shape; see `broadcast_to`."""
    shape = broadcast_shapes(*(each.shape for each in arrays))
    return [broadcast_to(each, shape) for each in arrays]


def concat(arrays: Sequence[Array], /, *, axis: int | None = 0) -> Array:
    """The arrays one behind the other along an axis, or flattened if the axis is None."""
    given = [array(each, "concat") for each in arrays]
    if not given:
        raise ValueError("concat takes at least one array")
    if axis is None:
        given, axis = [reshape(each, -1) for each in given], 0
    at = as_axis(axis, given[0].ndim)
    rest = given[0].shape[:at] + given[0].shape[at + 1 :]
    for each in given:
        if each.ndim != given[0].ndim or each.shape[:at] + each.shape[at + 1 :] != rest:
            told = " and ".join(str(one.shape) for one in given)
            raise ValueError(f"shapes {told} may only differ in axis {at}")
    shape = (*rest[:at], sum(each.shape[at] for each in given), *rest[at:])
    made = unwritten(shape, result_type(*given), _device_of(given))
    start = 0
    for each in given:
        end = start + each.shape[at]
        _write(made[(slice(None),) * at + (slice(start, end),)], each)
        start = end
    return made


def stack(arrays: Sequence[Array], /, *, axis: int = 0) -> Array:
    """The arrays, of one shape, along a new axis."""
    given = list(arrays)
    if not given:
        raise ValueError("stack takes at least one array")
    if any(each.shape != given[0].shape for each in given):
        raise ValueError(f"stack takes arrays of one shape, not {[each.shape for each in given]}")
    at = as_axis(axis, given[0].ndim + 1)
    return concat([expand_dims(each, axis=at) for each in given], axis=at)


def unstack(x: Array, /, *, axis: int = 0) -> tuple[Array, ...]:
    """Views of the parts along an axis, without that axis."""
    at = as_axis(axis, x.ndim)
    return tuple(x[(slice(None),) * at + (i,)] for i in range(x.shape[at]))


def roll(x: Array, /, shift: Any, *, axis: Any = None) -> Array:
    """The elements moved on along these axes, the last coming first; flattened without an axis."""
    if axis is None:
        return reshape(roll(reshape(x, -1), shift, axis=0), x.shape)
    axes = axis if isinstance(axis, (tuple, list)) else (axis,)
    shifts = shift if isinstance(shift, (tuple, list)) else (shift,) * len(axes)
    if len(shifts) == 1:
        shifts = tuple(shifts) * len(axes)
    if len(shifts) != len(axes):
        raise ValueError(f"roll takes one shift for each axis, not {len(shifts)}, {len(axes)}")
    by = [0] * x.ndim
    for one, where in zip(shifts, axes, strict=True):
        by[as_axis(where, x.ndim)] += whole(one, "a shift")
    made = unwritten(x.shape, x.dtype, x.device)
    if x.size:
        pieces = [_rolled(n, each) for n, each in zip(x.shape, by, strict=True)]
        for piece in itertools.product(*pieces):
            _write(made[tuple(to for to, _ in piece)], x[tuple(of for _, of in piece)])
    return made


def _rolled(length: int, shift: int) -> list[tuple[slice, slice]]:
    """The target and the source of each part of an axis."""
    by = shift % length
    if not by:
        return [(slice(None), slice(None))]
    return [
        (slice(by, None), slice(None, length - by)),
        (slice(None, by), slice(length - by, None)),
    ]


def tile(x: Array, repetitions: Any, /) -> Array:
    """The whole array repeated along each axis; the shorter shape gets axes of 1 in front."""
    times = as_shape(repetitions)
    rank = max(len(times), x.ndim)
    times = (1,) * (rank - len(times)) + times
    shape = (1,) * (rank - x.ndim) + x.shape
    pairs = tuple(itertools.chain.from_iterable(zip(times, shape, strict=True)))
    apart = reshape(x, tuple(itertools.chain.from_iterable((1, n) for n in shape)))
    full = tuple(a * b for a, b in zip(times, shape, strict=True))
    return broadcast_to(apart, pairs).copy().reshape(full)


def _device_of(arrays: Iterable[Array]) -> Any:
    devices = list(dict.fromkeys(each.device for each in arrays))
    if len(devices) > 1:
        raise ValueError(
            f"the arrays are on {devices[0]!r} and {devices[1]!r}: move one with x.to_device(...)"
        )
    return devices[0]


def _write(part: Array, x: Array) -> None:
    if math.prod(part.shape):
        cast_to(part.dtype).into((x,), part, user_frame())
