"""Cellar. Marks of one range of memory: a byte for each unit of it, set by compiled code.

Marks begin at the first unit that begins in the range. Each mark is a combination of `Touch`.
"""

from __future__ import annotations

import ctypes
import mmap
from contextlib import suppress
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from cudasync.softgpu.interface.mark_runs import MarkRuns

# Marks are compared in pieces of this many. Only if marks of a piece differ, each is looked at.
_PIECE: Final = 1 << 20
# From this many marks on, they are in large pages: fewer page faults.
_LARGE: Final = 1 << 19
_LARGE_PAGE: Final = 1 << 21
# Compiled code may load this many bytes behind the last mark.
_BEHIND: Final = 8

_compare = ctypes.CDLL(None).memcmp
_compare.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)


class Marks:
    """The marks of [start, end), at first 0. Untouched pages cost nothing."""

    __slots__ = ("_count", "_first", "_kept", "_offset", "_unit", "address")

    def __init__(self, start: int, end: int, unit: int = 1) -> None:
        """`unit` is a power of two. If it is not 1, only whole and aligned units are accessed."""
        self._unit = unit
        # The first unit that begins in the range.
        self._first = -(-start // unit) * unit
        self._count = max(0, -(-(end - self._first) // unit))
        size = self._count + _BEHIND
        is_large = size >= _LARGE and hasattr(mmap, "MADV_HUGEPAGE")
        if is_large:
            # Marks begin with a large page, and end within one.
            size = -(-size // _LARGE_PAGE) * _LARGE_PAGE + _LARGE_PAGE
        self._kept = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        start_of_map = ctypes.addressof(ctypes.c_ubyte.from_buffer(self._kept))
        # The place of the first mark in the map.
        self._offset = 0
        if is_large:
            # A kernel without large pages refuses.
            with suppress(OSError):
                self._kept.madvise(mmap.MADV_HUGEPAGE)
            self._offset = -start_of_map % _LARGE_PAGE
        self.address = start_of_map + self._offset

    def fill(self, start: int, end: int, mark: int) -> None:
        """Set the marks of these bytes, which are whole units."""
        low, high = (start - self._first) // self._unit, (end - self._first) // self._unit
        self._kept[self._offset + low : self._offset + high] = bytes([mark]) * (high - low)

    def runs(self) -> MarkRuns:
        """Runs of bytes with one mark other than 0."""
        # Loads as slowly as the whole driver, which does without.
        from cudasync.softgpu.interface import mark_runs

        pieces = []
        for start in range(0, self._count, _PIECE):
            end = min(start + _PIECE, self._count)
            # One mark throughout is equal to its next neighbour everywhere.
            place = self.address + start
            has_one = not _compare(place, place + 1, end - start - 1)
            if not has_one or self._kept[self._offset + start]:
                pieces.append((start, end, has_one))
        marks = memoryview(self._kept)[self._offset :]
        return mark_runs.of_pieces(marks, pieces, self._first, self._unit)
