"""Floor 4, operators. `x[index] = value`: a push that writes a view."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from cudasync.array.dtypes.promotion import WEAK, goes_with, promoted
from cudasync.array.dtypes.supported import supported
from cudasync.array.elementwise.operations import cast_to

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from cudasync.array.dtypes.supported import DType


def assign(part: Any, value: Any, frame: FrameType, upload: Callable[..., Any]) -> None:
    """Write `value`, which broadcasts to it, to a view; `upload` makes an array of host data.

    TypeError if the view's dtype cannot hold the kind of the value's dtype. ValueError for shapes
    that do not fit, and for a read-only view.
    """
    if part.is_read_only:
        raise ValueError("the assigned array is read-only: use x.copy()")
    dtype = supported(part.dtype)
    value = accepted(value, dtype, part.device, upload)
    is_array = hasattr(type(value), "__cudasync_plan__")
    if is_array and value.ptr == part.ptr and value.layout is part.layout:
        return
    cast_to(dtype).into((value,), part, frame)


def accepted(value: Any, dtype: DType, device: Any, upload: Callable[..., Any]) -> Any:
    """`value`, a number or an array, as an operand that can be assigned to an array of `dtype`."""
    if type(value) in WEAK:
        goes_with(dtype, type(value))
    elif hasattr(type(value), "__cudasync_plan__"):
        _held(value.dtype, dtype)
    elif isinstance(value, np.generic):
        _held(value.dtype, dtype)
        value = value.item()
    else:
        host = np.asarray(value)
        if host.dtype != dtype and not isinstance(value, np.ndarray):
            host = host.astype(dtype) if np.can_cast(host.dtype, dtype, "same_kind") else host
        _held(host.dtype, dtype)
        value = upload(host.astype(dtype), device=device)
    return value


def _held(source: np.dtype[Any], target: np.dtype[Any]) -> None:
    """Accept a narrower dtype of the same kind, as NumPy does, but no other kind."""
    if source.kind != target.kind:
        promoted(supported(source), target)
