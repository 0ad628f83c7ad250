"""Floor 4, the standard's namespace: manipulation by repeating each element."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cudasync.array.advanced_indexing.operation import searched, taken
from cudasync.array.dtypes.supported import INT64
from cudasync.array.elementwise.operations import cast_to
from cudasync.array.elementwise.plan import user_frame
from cudasync.array.reductions.operation import array
from cudasync.array.scans.operation import scanned
from cudasync.xp.manipulation import broadcast_to, expand_dims, reshape
from cudasync.xp.parameter_checks import as_axis
from cudasync.xp.sequences import arange
from cudasync.xp.statistical import min

if TYPE_CHECKING:
    from cudasync.array.array import Array


def repeat(x: Array, repeats: Any, /, *, axis: int | None = None) -> Array:
    """Each element several times, along an axis or flattened.

    `repeats` is one number, or an integer array of one dimension with a number for each element
    along the axis, or one for all. Such an array is waited for, because it decides the number of
    results. ValueError for a negative number and for an array of another length.
    """
    if axis is None:
        x, axis = reshape(x, -1), 0
    at = as_axis(axis, x.ndim)
    if not isinstance(repeats, int):
        return _by_counts(x, repeats, at)
    if repeats < 0:
        raise ValueError(f"repeat takes numbers from 0 on, not {repeats}")
    before, after = x.shape[: at + 1], x.shape[at + 1 :]
    wide = broadcast_to(expand_dims(x, axis=at + 1), (*before, repeats, *after))
    return wide.copy().reshape((*before[:-1], before[-1] * repeats, *after))


def _by_counts(x: Array, counts: Any, axis: int) -> Array:
    """The source of each result is found by its place among the sums of counts."""
    if array(counts, "repeat").dtype.kind not in "iu":
        raise TypeError(f"repeat takes integer numbers of repetitions, not {counts.dtype}")
    if counts.layout.device != x.layout.device:
        raise ValueError(
            f"the array is on {x.layout.device!r}, the repetitions on {counts.layout.device!r}: "
            "move one with x.to_device(...)"
        )
    length = x.shape[axis]
    if counts.ndim > 1 or counts.size not in (1, length):
        raise ValueError(
            f"repeat takes a number for each of {length} elements, not shape {counts.shape}"
        )
    if counts.size == 1:
        return repeat(x, int(counts), axis=axis)
    if not length:
        return x.copy()
    frame = user_frame()
    if int(min(counts)) < 0:
        raise ValueError("repeat takes numbers from 0 on, and one is negative")
    wide = cast_to(INT64)((counts,), frame)
    ends = scanned("sum", wide, frame, axis=0, dtype=None, has_initial=False)
    results = arange(int(ends[-1]), dtype=INT64, device=x.device)
    made: Array = taken(x, searched(ends, results, frame, is_right=True), axis, frame)
    return made
