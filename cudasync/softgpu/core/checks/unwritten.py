"""Cellar. The bytes of an allocation that nobody has written.

A kernel may write millions of short ranges at once. A change takes time for the ranges between its
first and its last byte.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cudasync.softgpu.interface.byte_ranges import (
    NOTHING,
    ByteRanges,
    difference,
    intersection,
    union,
)

if TYPE_CHECKING:
    from collections.abc import Callable


class Unwritten:
    """A set of bytes."""

    def __init__(self, ranges: ByteRanges) -> None:
        self._ranges = ranges

    def __bool__(self) -> bool:
        return bool(len(self._ranges))

    def within(self, asked: ByteRanges) -> ByteRanges:
        """Those of these bytes that are unwritten."""
        if not self:
            return NOTHING
        if len(asked) == 1:
            return self._ranges.within(*next(iter(asked)))
        return intersection(self._ranges, asked)

    def take_away(self, ranges: ByteRanges) -> None:
        """Note that these bytes are written."""
        if self:
            self._change(ranges, difference)

    def add(self, ranges: ByteRanges) -> None:
        """Note that these bytes are unwritten again."""
        self._change(ranges, union)

    def _change(
        self, ranges: ByteRanges, change: Callable[[ByteRanges, ByteRanges], ByteRanges]
    ) -> None:
        if not len(ranges):
            return
        old = self._ranges
        # The old ranges that meet or border on the span of the new ones.
        low = int(np.searchsorted(old.ends, ranges.starts[0], "left"))
        high = int(np.searchsorted(old.starts, ranges.ends[-1], "right"))
        made = change(ByteRanges(old.starts[low:high], old.ends[low:high]), ranges)
        self._ranges = ByteRanges(
            np.concatenate((old.starts[:low], made.starts, old.starts[high:])),
            np.concatenate((old.ends[:low], made.ends, old.ends[high:])),
        )
