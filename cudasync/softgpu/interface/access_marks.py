"""Cellar. Marks of one range of memory: a byte for each unit of it, set by compiled code.

Marks begin at the first unit that begins in the range. Each mark is a combination of `Touch`.
"""

from __future__ import annotations

import ctypes
import mmap
import re
from contextlib import suppress
from typing import Final

_MARKS: Final = 32
# Marks are compared in pieces of this many bytes, which are looked at again only if marks differ:
# then in stretches, which stay in a processor's second cache.
_PIECE: Final = 1 << 20
_STRETCH: Final = 1 << 16
_PART: Final = 1 << 10
# For each mark: a stretch with this mark alone, a part of it, and a pattern for less than a part.
_REPEATED: Final = [
    (
        bytes([mark]) * (_STRETCH if mark else 0),
        bytes([mark]) * _PART,
        re.compile(b"%b+" % re.escape(bytes([mark]))),
    )
    for mark in range(_MARKS)
]
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

    def runs(self) -> list[tuple[int, int, int]]:
        """Runs of bytes with one mark other than 0, in order: start, end, mark.

        Neighbours may have the same mark. Most parts are found to have one mark by a comparison of
        memory. The marks themselves are looked at near the ends of runs alone.
        """
        found: list[tuple[int, int, int]] = []
        for start in range(0, self._count, _PIECE):
            end = min(start + _PIECE, self._count)
            # One mark throughout is equal to its next neighbour everywhere.
            place = self.address + start
            if _compare(place, place + 1, end - start - 1):
                found += self._mixed_runs(start, end)
            elif mark := self._kept[self._offset + start]:
                found.append((self._place(start), self._place(end), mark))
        return found

    def _place(self, index: int) -> int:
        return self._first + self._unit * index

    def _mixed_runs(self, begin: int, end: int) -> list[tuple[int, int, int]]:
        """The runs of a piece with several marks."""
        found: list[tuple[int, int, int]] = []
        origin, unit, offset = self._first, self._unit, self._offset
        for start in range(begin, end, _STRETCH):
            stretch = self._kept[offset + start : offset + min(start + _STRETCH, end)]
            base = origin + unit * start
            low, size = 0, len(stretch)
            # Whether zeros were behind the last run of another mark: finding a zero is quick.
            ends_at_zero = True
            while low < size:
                mark = stretch[low]
                whole, part, rest = _REPEATED[mark]
                high = low
                if mark and ends_at_zero:
                    zero = stretch.find(0, low)
                    end_of_run = size if zero < 0 else zero
                    ends_at_zero = stretch.startswith(whole[: end_of_run - low], low)
                    high = end_of_run if ends_at_zero else low
                if high == low:
                    while stretch.startswith(part, high):
                        high += _PART
                    behind = rest.match(stretch, high)
                    high = behind.end() if behind is not None else high
                if mark:
                    found.append((base + unit * low, base + unit * high, mark))
                low = high
        return found
