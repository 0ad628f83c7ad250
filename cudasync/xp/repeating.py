"""Floor 4, the standard's namespace: elements and arrays again and again."""

from __future__ import annotations

import itertools
import operator
from typing import TYPE_CHECKING, Any

from cudasync.array.array import Array
from cudasync.array.dtypes.supported import INT64
from cudasync.array.elementwise.operations import cast_to
from cudasync.array.elementwise.plan import user_frame
from cudasync.array.picking.operation import searched, taken
from cudasync.array.reductions.operation import reduced
from cudasync.array.scans.operation import scanned
from cudasync.xp.manipulation import broadcast_to, expand_dims, reshape
from cudasync.xp.places import as_axis, as_shape
from cudasync.xp.sequences import arange

if TYPE_CHECKING:
    from types import FrameType


def repeat(x: Array, repeats: int | Array, /, *, axis: int | None = None) -> Array:
    """Each element `repeats` times, along an axis or flattened.

    `repeats` may be an array of integers, one for each element or for all, none of them negative:
    how many elements there are is data then, so it waits for that array.
    """
    if isinstance(repeats, Array):
        return _repeated(x, repeats, axis, user_frame())
    repeats = operator.index(repeats)
    if repeats < 0:
        raise ValueError(f"repeat takes 0 and more, not {repeats}")
    if axis is None:
        x, axis = reshape(x, -1), 0
    at = as_axis(axis, x.ndim)
    before, after = x.shape[: at + 1], x.shape[at + 1 :]
    wide = broadcast_to(expand_dims(x, axis=at + 1), (*before, repeats, *after))
    return wide.copy().reshape((*before[:-1], before[-1] * repeats, *after))


def tile(x: Array, repetitions: Any, /) -> Array:
    """The whole array again and again along each axis; the shorter one gets axes of 1 in front."""
    times = as_shape(repetitions)
    rank = max(len(times), x.ndim)
    times = (1,) * (rank - len(times)) + times
    shape = (1,) * (rank - x.ndim) + x.shape
    pairs = tuple(itertools.chain.from_iterable(zip(times, shape, strict=True)))
    apart = reshape(x, tuple(itertools.chain.from_iterable((1, n) for n in shape)))
    full = tuple(a * b for a, b in zip(times, shape, strict=True))
    return broadcast_to(apart, pairs).copy().reshape(full)


def _repeated(x: Array, repeats: Array, axis: int | None, frame: FrameType) -> Array:
    if repeats.ndim > 1 or repeats.dtype.kind not in "iu":
        raise TypeError(
            f"repeat takes integers in one dimension, not {repeats.dtype} of shape {repeats.shape}"
        )
    if axis is None:
        x, axis = reshape(x, -1), 0
    at = as_axis(axis, x.ndim)
    length = x.shape[at]
    counts = cast_to(INT64)((repeats,), frame)
    if repeats.size == 1:
        counts = broadcast_to(counts.reshape((1,)), (length,)).copy()
    if counts.shape != (length,):
        raise ValueError(f"{length} elements are repeated, and there are {repeats.size} numbers")
    if not length:
        return x.copy()
    ends = scanned("sum", counts, frame, axis=0, dtype=None, has_initial=False)
    least = reduced("min", (counts,), frame, axes=(0,))
    if int(least) < 0:
        raise ValueError(f"repeat takes 0 and more, not {int(least)}")
    places = arange(int(ends[-1]), dtype=INT64, device=x.device)
    if not places.size:
        return x[(slice(None),) * at + (slice(0, 0),)].copy()
    made: Array = taken(x, searched(ends, places, frame, is_right=True), at, frame)
    return made
