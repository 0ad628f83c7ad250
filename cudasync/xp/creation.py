"""Floor 4, the standard's namespace: creation. All return at once.

`device` is None for the current device, an ordinal, a `cs.Device` or "cpu". Without a dtype, arrays
of floats are float32, of integers int64 and of bools bool. ValueError for a negative shape,
MemoryError for more than the device has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from cudasync.array.array import Array
from cudasync.array.dtypes.promotion import WEAK, default_dtype, goes_with, in_range
from cudasync.array.dtypes.supported import (
    DEFAULT_FLOAT,
    supported,
)
from cudasync.array.elementwise.operations import cast_to
from cudasync.array.elementwise.plan import user_frame
from cudasync.array.host.memory import CPU
from cudasync.array.interchange.dlpack_import import from_dlpack as _from_dlpack
from cudasync.driver.arguments.remedies import described
from cudasync.xp.initial_contents import of_host, to_overwrite, unwritten, zeroed
from cudasync.xp.parameter_checks import as_shape, place

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

    from cudasync.array.dtypes.supported import DType


def asarray(
    obj: Any, /, *, dtype: DTypeLike | None = None, device: Any = None, copy: bool | None = None
) -> Array:
    """An array of `obj`: an array, NumPy's or another library's, a number, or nested sequences.

    An array that needs no change is returned itself unless `copy` is true. ValueError if `copy` is
    false and a copy is needed. Host data is copied, also to the CPU, unless `copy` is false: then
    the result lies over the memory of NumPy's array, as with `from_dlpack`.
    """
    kind = None if dtype is None else supported(dtype)
    if isinstance(obj, Array):
        return _of_array(obj, kind, device, copy)
    if hasattr(obj, "__cuda_array_interface__") or _is_elsewhere(obj):
        return _of_array(_from_dlpack(obj), kind, device, copy)
    if copy is False:
        if not hasattr(obj, "__dlpack__") or place(device) is not CPU:
            raise ValueError(
                "asarray copies host data: copy=False needs an array of NumPy or another library, "
                'and device="cpu"'
            )
        return _of_array(_from_dlpack(obj), kind, device, copy)
    host = np.asarray(obj)
    if host.dtype.hasobject:
        raise TypeError(
            "asarray takes numbers of at most 64 bits, and nested sequences of them, not "
            f"{described(obj)}"
        )
    supported(host.dtype)
    return of_host(obj, kind, place(device))


def _of_array(x: Array, dtype: DType | None, device: Any, copy: bool | None) -> Array:
    made = x if device is None else x.to_device(place(device))
    if dtype is not None and dtype != x.dtype:
        made = cast_to(dtype)((made,), user_frame())
    if copy is False and made is not x:
        raise ValueError("another dtype or device needs a copy: leave copy=False out")
    return made.copy() if copy and made is x else made


def _is_elsewhere(obj: Any) -> bool:
    """True for another library's array that is not in host memory."""
    ask = getattr(obj, "__dlpack_device__", None)
    return ask is not None and not isinstance(obj, np.ndarray) and ask()[0] != 1


def from_dlpack(x: Any, /, *, device: Any = None, copy: bool | None = None) -> Array:
    """An array over the memory of another library's array, on the same device: see
    `cs.from_dlpack`.

    With another device, or if `copy` is true, it is a copy. BufferError if `copy` is false and a
    copy is needed.
    """
    made = _from_dlpack(x)
    if device is None or place(device) == made.device:
        return made.copy() if copy else made
    if copy is False:
        raise BufferError(
            f"the array is on {made.device!r}, and {place(device)!r} needs a copy: leave "
            "copy=False out"
        )
    return made.to_device(place(device))


def empty(shape: Any, *, dtype: DTypeLike | None = None, device: Any = None) -> Array:
    """An uninitialised array."""
    kind = DEFAULT_FLOAT if dtype is None else supported(dtype)
    return unwritten(as_shape(shape), kind, place(device))


def zeros(shape: Any, *, dtype: DTypeLike | None = None, device: Any = None) -> Array:
    """An array of zeros."""
    kind = DEFAULT_FLOAT if dtype is None else supported(dtype)
    return zeroed(as_shape(shape), kind, place(device))


def ones(shape: Any, *, dtype: DTypeLike | None = None, device: Any = None) -> Array:
    """An array of ones."""
    return _filled(as_shape(shape), 1, DEFAULT_FLOAT if dtype is None else supported(dtype), device)


def full(
    shape: Any, fill_value: Any, *, dtype: DTypeLike | None = None, device: Any = None
) -> Array:
    """An array of `fill_value`, a number or an array without dimensions."""
    if isinstance(fill_value, Array):
        if fill_value.shape:
            raise ValueError(f"full takes a scalar, not an array of shape {fill_value.shape}")
        kind = fill_value.dtype if dtype is None else supported(dtype)
        device = fill_value.device if device is None else device
        return _filled(as_shape(shape), fill_value, kind, device)
    kind = default_dtype(fill_value) if dtype is None else supported(dtype)
    if type(fill_value) in WEAK and type(fill_value) is not bool:
        goes_with(kind, type(fill_value))
        in_range(kind, fill_value)
    return _filled(as_shape(shape), fill_value, kind, device)


def _filled(shape: tuple[int, ...], value: Any, dtype: DType, device: Any) -> Array:
    made = to_overwrite(shape, dtype, place(device))
    cast_to(dtype).into((value,), made, user_frame())
    return made


def empty_like(x: Array, /, *, dtype: DTypeLike | None = None, device: Any = None) -> Array:
    """`empty` with the shape, dtype and device of `x`, unless others are given."""
    return empty(x.shape, dtype=x.dtype if dtype is None else dtype, device=_of(x, device))


def zeros_like(x: Array, /, *, dtype: DTypeLike | None = None, device: Any = None) -> Array:
    """`zeros` with the shape, dtype and device of `x`, unless others are given."""
    return zeros(x.shape, dtype=x.dtype if dtype is None else dtype, device=_of(x, device))


def ones_like(x: Array, /, *, dtype: DTypeLike | None = None, device: Any = None) -> Array:
    """`ones` with the shape, dtype and device of `x`, unless others are given."""
    return ones(x.shape, dtype=x.dtype if dtype is None else dtype, device=_of(x, device))


def full_like(
    x: Array, /, fill_value: Any, *, dtype: DTypeLike | None = None, device: Any = None
) -> Array:
    """`full` with the shape, dtype and device of `x`, unless others are given."""
    kind = x.dtype if dtype is None else dtype
    return full(x.shape, fill_value, dtype=kind, device=_of(x, device))


def _of(x: Array, device: Any) -> Any:
    return x.device if device is None else device
