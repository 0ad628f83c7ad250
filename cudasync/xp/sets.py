"""Floor 4, the standard's namespace: sets, as sorted values; each NaN is a value of its own.

The number of values is data, so all functions wait for it.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, NamedTuple

from cudasync.array.advanced_indexing.operation import put, taken, where_kept
from cudasync.array.elementwise.operations import OPERATIONS
from cudasync.array.reductions.operation import array
from cudasync.array.scans.operation import scanned
from cudasync.array.sorting.operation import sort_rows
from cudasync.xp.creation import full, ones
from cudasync.xp.data_types import bool as bool_dtype
from cudasync.xp.data_types import int64
from cudasync.xp.manipulation import concat, reshape

if TYPE_CHECKING:
    from types import FrameType

_getframe = sys._getframe


class UniqueAll(NamedTuple):
    """The result of `unique_all`."""

    values: Any
    indices: Any
    inverse_indices: Any
    counts: Any


class UniqueCounts(NamedTuple):
    """The result of `unique_counts`."""

    values: Any
    counts: Any


class UniqueInverse(NamedTuple):
    """The result of `unique_inverse`."""

    values: Any
    inverse_indices: Any


def unique_all(x: Any, /) -> UniqueAll:
    """Each value once, its first place, the index of each element's value (in the shape of `x`),
    and the number of its elements. Waits for `x`."""
    found = _Unique(array(x, "unique_all"), _getframe(1))
    return UniqueAll(found.values(), found.indices(), found.inverse(), found.counts())


def unique_counts(x: Any, /) -> UniqueCounts:
    """Each value once, and the number of its elements. Waits for `x`."""
    found = _Unique(array(x, "unique_counts"), _getframe(1))
    return UniqueCounts(found.values(), found.counts())


def unique_inverse(x: Any, /) -> UniqueInverse:
    """Each value once, and the index of each element's value. Waits for `x`."""
    found = _Unique(array(x, "unique_inverse"), _getframe(1))
    return UniqueInverse(found.values(), found.inverse())


def unique_values(x: Any, /) -> Any:
    """Each value once. Waits for `x`."""
    return _Unique(array(x, "unique_values"), _getframe(1)).values()


class _Unique:
    """The elements in order, and the places among them where a new value begins."""

    def __init__(self, x: Any, frame: FrameType) -> None:
        self._frame = frame
        self._shape = x.shape
        flat = reshape(x, (-1,)) if x.size else reshape(x, (0,))
        self._order = sort_rows(flat, frame, gives_places=True, is_descending=False)
        self._first: Any = None
        self._flat = flat
        if not x.size:
            return
        row = taken(flat, self._order, 0, frame)
        differs = OPERATIONS["not_equal"]((row[1:], row[:-1]), frame)
        begins = concat([ones((1,), dtype=bool_dtype, device=x.device), differs])
        self._row = row
        self._number = scanned("sum", begins, frame, axis=0, dtype=None, has_initial=False)
        self._first = where_kept(begins, self._number, int(self._number[-1]), frame)

    def values(self) -> Any:
        return self._flat if self._first is None else taken(self._row, self._first, 0, self._frame)

    def indices(self) -> Any:
        if self._first is None:
            return self._order
        return taken(self._order, self._first, 0, self._frame)

    def inverse(self) -> Any:
        if self._first is None:
            return reshape(self._order, self._shape)
        return reshape(put(self._order, self._number, self._frame), self._shape)

    def counts(self) -> Any:
        if self._first is None:
            return self._order
        size = full((1,), self._flat.size, dtype=int64, device=self._flat.device)
        ends = concat([self._first[1:], size])
        return OPERATIONS["subtract"]((ends, self._first), self._frame)
