"""Floor 4, the standard's namespace: indexing by arrays. All return at once.

An index below 0 counts from the end. Functions do not wait for indices, so an index beyond the axis
is no error: it takes the nearest element.
"""

from __future__ import annotations

import sys
from typing import Any

from cudasync.array.advanced_indexing.operation import taken, taken_along
from cudasync.array.dtypes.supported import INT64
from cudasync.array.elementwise.operations import cast_to
from cudasync.array.expressions.layout import broadcast_shapes
from cudasync.array.reductions.operation import array
from cudasync.xp.manipulation import broadcast_to
from cudasync.xp.parameter_checks import as_axis

_getframe = sys._getframe


def take(x: Any, indices: Any, /, *, axis: int | None = None) -> Any:
    """The elements at `indices`, an integer array of one dimension, along an axis. Only an array of
    one dimension may leave the axis out. IndexError for an axis without elements."""
    rank = len(array(x, "take").shape)
    if axis is None and rank != 1:
        raise ValueError(f"take of an array of {rank} dimensions needs an axis: give axis=")
    at = as_axis(0 if axis is None else axis, rank)
    frame = _getframe(1)
    places = _indices(indices, "take", frame)
    if len(places.shape) != 1:
        raise ValueError(f"take takes indices of 1 dimension, not {len(places.shape)}")
    _has_elements(x, at, places)
    return taken(x, places, at, frame)


def take_along_axis(x: Any, indices: Any, /, *, axis: int = -1) -> Any:
    """The elements at `indices`, an integer array of the same rank, for each place along an axis;
    the other axes broadcast."""
    rank = len(array(x, "take_along_axis").shape)
    at = as_axis(axis, rank)
    frame = _getframe(1)
    places = _indices(indices, "take_along_axis", frame)
    if len(places.shape) != rank:
        raise ValueError(
            f"take_along_axis takes indices with as many dimensions as the array: {rank}, not "
            f"{len(places.shape)}"
        )
    _has_elements(x, at, places)
    others = broadcast_shapes(_without(x.shape, at), _without(places.shape, at))
    wide = broadcast_to(x, (*others[:at], x.shape[at], *others[at + 1 :]))
    where = broadcast_to(places, (*others[:at], places.shape[at], *others[at + 1 :]))
    return taken_along(wide, where, at, frame)


def _without(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    return (*shape[:axis], 1, *shape[axis + 1 :])


def _indices(indices: Any, name: str, frame: Any) -> Any:
    if array(indices, name).dtype.kind not in "iu":
        raise TypeError(f"{name} takes integer indices, not {indices.dtype}")
    return indices if indices.dtype == INT64 else cast_to(INT64)((indices,), frame)


def _has_elements(x: Any, axis: int, indices: Any) -> None:
    if x.layout.device != indices.layout.device:
        raise ValueError(
            f"the array is on {x.layout.device!r}, the indices on {indices.layout.device!r}: "
            "move one with x.to_device(...)"
        )
    if not x.shape[axis] and indices.size:
        raise IndexError(f"axis {axis} of shape {x.shape} has no elements to take")
