"""Cellar. Copies of rows of bytes: row by row, or by column if there are many short rows.

A Python loop over many short rows took three times as long as a kernel that gathers them.
"""

from __future__ import annotations

from ctypes import c_char, memmove
from typing import Final, Literal


def move_rows(
    target: int,
    source: int,
    lengths: tuple[int, int, int],
    target_steps: tuple[int, int],
    source_steps: tuple[int, int],
) -> None:
    """Move slices of rows of bytes between two addresses. (lengths: slices, rows, bytes of a row)

    Steps are from slice to slice and from row to row. Source and target rows must not overlap.
    """
    slices, rows, width = lengths
    if not width:
        return
    for z in range(slices):
        to, of = target + z * target_steps[0], source + z * source_steps[0]
        if rows <= width:
            for y in range(rows):
                memmove(to + y * target_steps[1], of + y * source_steps[1], width)
        else:
            _move_columns(to, of, rows, width, (target_steps[1], source_steps[1]))


def _move_columns(
    target: int, source: int, rows: int, width: int, pitches: tuple[int, int]
) -> None:
    """Move each column of the rows by one call; a column is as wide as the alignment allows."""
    word = next(n for n in _FORMATS if not (target | source | width | pitches[0] | pitches[1]) % n)
    to, of = (
        # Bytes behind the last row are not touched.
        memoryview((c_char * (((rows - 1) * pitch + width) // word * word)).from_address(at))
        .cast("B")
        .cast(_FORMATS[word])
        for at, pitch in ((target, pitches[0]), (source, pitches[1]))
    )
    to_step, of_step = (pitch // word for pitch in pitches)
    for x in range(width // word):
        to[x : (rows - 1) * to_step + x + 1 : to_step] = of[
            x : (rows - 1) * of_step + x + 1 : of_step
        ]


# By the bytes of a word, the largest first.
_FORMATS: Final[dict[int, Literal["Q", "I", "H", "B"]]] = {8: "Q", 4: "I", 2: "H", 1: "B"}
