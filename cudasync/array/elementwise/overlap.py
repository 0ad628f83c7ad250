"""Floor 4, elementwise. Decides whether a result may be written over its operands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cudasync.array.elementwise.layouts import Layout


def is_apart(
    layouts: Sequence[Layout | None], mine: Layout, operands: tuple[Any, ...], target: Any
) -> bool:
    """True if each byte is read before it is written: every operand that shares bytes with `target`
    has its elements exactly at the target's elements.

    `layouts` are the operands' layouts, None for numbers; `mine` is the target's.
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
