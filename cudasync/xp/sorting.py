"""Floor 4, the standard's namespace: sorting, by merging. All return at once.

Equal elements keep their order, with and without `stable`. NaN counts as the largest. IndexError
for an axis beyond the dimensions.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from cudasync.array.reductions.operation import array
from cudasync.array.sorting.operation import sort_rows
from cudasync.xp.manipulation import moveaxis
from cudasync.xp.parameter_checks import as_axis

if TYPE_CHECKING:
    from types import FrameType

_getframe = sys._getframe


def sort(x: Any, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Any:
    """A new array with the elements in order along an axis."""
    return _sorted("sort", x, axis, descending, _getframe(1))


def argsort(x: Any, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Any:
    """The places of the sorted elements along an axis, as int64."""
    return _sorted("argsort", x, axis, descending, _getframe(1))


def _sorted(name: str, x: Any, axis: int, descending: bool, frame: FrameType) -> Any:
    at = as_axis(axis, len(array(x, name).shape))
    rows = moveaxis(x, at, -1)
    found = sort_rows(rows, frame, gives_places=name == "argsort", is_descending=bool(descending))
    return found if at == x.ndim - 1 else moveaxis(found, -1, at).copy()
