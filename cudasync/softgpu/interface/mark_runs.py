"""Cellar. The marks of a recording, read as runs of units with one mark, many at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cudasync.softgpu.interface.byte_ranges import ByteRanges

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import TypeAlias

    from numpy.typing import NDArray

    from cudasync.softgpu.interface.byte_ranges import Addresses

    MarkValues: TypeAlias = NDArray[np.uint8]


class MarkRuns:
    """Runs of bytes with one mark other than 0, in order. Neighbours may have the same mark."""

    __slots__ = ("ends", "marks", "starts")

    def __init__(self, starts: Addresses, ends: Addresses, marks: MarkValues) -> None:
        self.starts = starts
        self.ends = ends
        self.marks = marks

    def __iter__(self) -> Iterator[tuple[int, int, int]]:
        """Start, end and mark of each run."""
        rows = self.starts.tolist(), self.ends.tolist(), self.marks.tolist()
        return zip(*rows, strict=True)

    def of_kind(self, kind: int, without: int = 0) -> ByteRanges:
        """The bytes with a mark of `kind` and none of `without`."""
        is_chosen = (self.marks & kind != 0) & (self.marks & without == 0)
        return ByteRanges(self.starts[is_chosen], self.ends[is_chosen]).joined()


def of_pieces(
    marks: memoryview, pieces: Sequence[tuple[int, int, bool]], first: int, unit: int
) -> MarkRuns:
    """The runs in these pieces of the marks: first index, index behind the last, and whether the
    piece has one mark throughout. The unit at index 0 begins at address `first`.
    """
    rows: list[tuple[Addresses, Addresses, MarkValues]] = []
    for start, end, has_one in pieces:
        values: MarkValues = np.frombuffer(marks, np.uint8, end - start, start)
        changes = np.empty(0, np.int64)
        if not has_one:
            changes = np.flatnonzero(values[1:] != values[:-1]) + 1
        bounds = np.concatenate(([0], changes, [end - start]))
        found = values[bounds[:-1]]
        is_marked = found != 0
        places = first + unit * (start + bounds)
        rows.append((places[:-1][is_marked], places[1:][is_marked], found[is_marked]))
    if not rows:
        nothing = np.empty(0, np.int64)
        return MarkRuns(nothing, nothing, np.empty(0, np.uint8))
    starts, ends, found = (np.concatenate(column) for column in zip(*rows, strict=True))
    return MarkRuns(starts, ends, found)
