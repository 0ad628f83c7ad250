"""Floor 4, the standard's namespace: data types, questions about them, and conversions."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from cudasync.array.dtypes.limits import finfo, iinfo
from cudasync.array.dtypes.promotion import can_cast, result_type
from cudasync.array.dtypes.supported import (
    BOOL,
    FLOAT16,
    FLOAT32,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    UINT8,
    UINT16,
    UINT32,
    UINT64,
    isdtype,
    supported,
)
from cudasync.array.elementwise.operations import cast_to

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

__all__ = ["astype", "can_cast", "finfo", "iinfo", "isdtype", "result_type"]

bool = BOOL
int8, int16, int32, int64 = INT8, INT16, INT32, INT64
uint8, uint16, uint32, uint64 = UINT8, UINT16, UINT32, UINT64
float16, float32, float64 = FLOAT16, FLOAT32, FLOAT64


def astype(x: Any, dtype: DTypeLike, /, *, copy: Any = True, device: Any = None) -> Any:
    """`x` as another dtype, on its device or on `device`; `x` itself if `copy` is false and nothing
    changes.

    Converts as C does: floats are cut towards 0, integers wrap; a float that an integer dtype does
    not hold gives any value. Returns at once.
    """
    kind = supported(dtype)
    frame = sys._getframe(1)
    if device is not None:
        x = x.to_device(device)
    if not copy and x.dtype == kind:
        return x
    return cast_to(kind)((x,), frame)
