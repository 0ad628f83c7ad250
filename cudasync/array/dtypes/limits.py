"""Floor 4, dtypes. `finfo` and `iinfo`: the limits of a dtype, as Python's numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from cudasync.array.dtypes.supported import supported

if TYPE_CHECKING:
    from cudasync.array.dtypes.supported import DType


@dataclass(frozen=True, slots=True)
class FloatLimits:
    """The result of `finfo`; all but `bits` and `dtype` are Python floats."""

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: DType


@dataclass(frozen=True, slots=True)
class IntegerLimits:
    """The result of `iinfo`."""

    bits: int
    max: int
    min: int
    dtype: DType


def finfo(type: Any, /) -> FloatLimits:
    """The limits of a floating dtype, or of an array's; TypeError for any other dtype."""
    dtype = supported(getattr(type, "dtype", type))
    if dtype.kind != "f":
        raise TypeError(f"finfo is for floating dtypes, not {dtype}: use iinfo for integers")
    found = np.finfo(dtype)
    return FloatLimits(
        bits=int(found.bits),
        eps=float(found.eps),
        max=float(found.max),
        min=float(found.min),
        smallest_normal=float(found.smallest_normal),
        dtype=dtype,
    )


def iinfo(type: Any, /) -> IntegerLimits:
    """The limits of an integer dtype, or of an array's; TypeError for any other dtype."""
    dtype = supported(getattr(type, "dtype", type))
    if dtype.kind not in "iu":
        raise TypeError(f"iinfo is for integer dtypes, not {dtype}: use finfo for floats")
    found = np.iinfo(dtype)
    return IntegerLimits(int(found.bits), int(found.max), int(found.min), dtype)
