"""Floor 4. The places where a mask is true. Their number is data, so this waits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cudasync.array.advanced_indexing.flat_indices import unwritten
from cudasync.array.advanced_indexing.operation import where_kept
from cudasync.array.dtypes.supported import INT64
from cudasync.array.scans.operation import scanned

if TYPE_CHECKING:
    from types import FrameType


def true_places(mask: Any, frame: FrameType) -> Any:
    """The places, int64, of the true elements, counted in C order. Waits for `mask`, bool."""
    if not mask.size:
        return unwritten(mask, INT64, (0,))
    plain = mask if mask.is_contiguous else mask.copy()
    flat = plain.reshape((mask.size,))
    before = scanned("sum", flat, frame, axis=0, dtype=None, has_initial=False)
    return where_kept(flat, before, int(before[-1]), frame)
