"""Floor 4. What the driver copies in one call though it lies apart: a box of bytes.

The axes of both sides are taken together, an element's bytes among them. A run of bytes is left
innermost where there is one, and at most two axes beside it: rows, and slices of rows. All else is
for kernels and for NumPy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.array.expressions.layout import collapsed
from cudasync.driver.memory.box_copies import MAX_PITCH, Box

if TYPE_CHECKING:
    # Lengths, strides in bytes, and bytes of an element.
    Lie = tuple[tuple[int, ...], tuple[int, ...], int]

# A row costs the driver about as much as this many bytes. So many short rows are left to kernels,
# which go through them side by side.
_LONG_BYTES = 64
_FEW = 4096


def box_between(target: Lie, source: Lie) -> Box | None:
    """The box that a copy between these is, from the lowest byte of each; None where it is none.

    Both have one shape and elements of one size, and are not empty.
    """
    lengths, _, size = target
    found = collapsed((*lengths, size), [(*source[1], 1), (*target[1], 1)])
    of, to = found.strides
    if not of or of[-1] != 1 or to[-1] != 1 or len(of) > 3:
        return None
    *outer, width = found.lengths
    rows = outer[-1] if outer else 1
    slices = outer[0] if len(outer) == 2 else 1
    heights = []
    for steps in (to, of):
        pitch = steps[-2] if outer else width
        step = steps[0] if len(outer) == 2 else rows * pitch
        if not width <= pitch <= MAX_PITCH or step % pitch or step < rows * pitch:
            return None
        heights.append((pitch, step // pitch))
    if outer and width < _LONG_BYTES and (width == size or rows * slices > _FEW):
        return None
    (target_pitch, target_height), (source_pitch, source_height) = heights
    return Box(width, rows, slices, target_pitch, source_pitch, target_height, source_height)


def is_apart(box: Box, distance: int) -> bool:
    """True if the rows of both sides do not meet, so many bytes from the source to the target,
    where the spans of both do: one has its rows in the gaps of the other."""
    pitch = box.target_pitch
    return pitch == box.source_pitch and box.width <= distance % pitch <= pitch - box.width
