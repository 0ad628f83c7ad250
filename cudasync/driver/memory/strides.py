"""Floor 1. Strides in bytes, and the check for contiguous C order."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def contiguous_strides(shape: Sequence[int], item_size: int) -> tuple[int, ...]:
    """The strides in bytes of a C-contiguous array."""
    strides: list[int] = []
    step = item_size
    for length in reversed(shape):
        strides.append(step)
        step *= max(1, length)
    return tuple(reversed(strides))


def is_contiguous(shape: Sequence[int], strides: Sequence[int] | None, item_size: int) -> bool:
    """True if the elements are in C order without gaps; `strides=None` means that they are.

    As in NumPy: the stride of a dimension of length 1 does not matter, and an array without
    elements has no gaps.
    """
    if strides is None:
        return True
    expected = item_size
    is_plain = True
    for axis in range(len(shape) - 1, -1, -1):
        length = shape[axis]
        if length == 0:
            return True
        if length != 1:
            if strides[axis] != expected:
                is_plain = False
            expected *= length
    return is_plain
