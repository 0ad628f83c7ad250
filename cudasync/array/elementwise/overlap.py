"""Floor 4, elementwise. Whether a result may be written where its operands are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cudasync.array.elementwise.layouts import Layout


def is_apart(
    layouts: Sequence[Layout | None], mine: Layout, operands: tuple[Any, ...], target: Any
) -> bool:
    """True if nothing is written before it is read: each operand that shares bytes with `target`
    has its elements in the very places of the target's.

    `layouts` are those of the operands, None for numbers, and `mine` is the target's.
    """
    low, high = target.region
    for layout, each in zip(layouts, operands, strict=True):
        if layout is None or each.region[0] >= high or each.region[1] <= low:
            continue
        if (
            each.ptr != target.ptr
            or layout.strides != mine.strides
            or layout.shape != mine.shape
            or layout.dtype.itemsize != mine.dtype.itemsize
        ):
            return False
    return True
