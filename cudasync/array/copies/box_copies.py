"""Floor 4, copies. Boxes of bytes: copies with gaps that the driver still does in one call.

The axes of both sides are taken together, including the bytes of an element. A box has a run of
bytes innermost, and at most two axes beside it: rows, and slices of rows. Kernels and NumPy do all
other copies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.array.expressions.layout import collapsed
from cudasync.driver.memory.box_copies import MAX_PITCH, Box

if TYPE_CHECKING:
    # Lengths, strides in bytes, and bytes of an element.
    Lie = tuple[tuple[int, ...], tuple[int, ...], int]

# A row costs the driver about as much as this many bytes. So kernels copy many short rows, side by
# side.
_LONG_BYTES = 64
_FEW = 4096


def box_between(target: Lie, source: Lie) -> Box | None:
    """The box of a copy between these sides, from the lowest byte of each; None if it is no box.

    Both sides have one shape and elements of one size, and are not empty.
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
    """True if the rows of both sides do not overlap although their spans do: one side has its rows
    in the gaps of the other. `distance` is the number of bytes from the source to the target."""
    pitch = box.target_pitch
    return pitch == box.source_pitch and box.width <= distance % pitch <= pitch - box.width
