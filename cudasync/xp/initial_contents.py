"""Floor 4, the standard's namespace: new arrays, by their initial contents."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from cudasync.array import creation
from cudasync.array.any_device import anywhere
from cudasync.array.array import Array
from cudasync.array.elementwise.layouts import contiguous
from cudasync.array.elementwise.results import new_result
from cudasync.array.host.array import new_on_host, uploaded
from cudasync.array.host.memory import CPU, view_of
from cudasync.array.memory.limits import check_size
from cudasync.driver import ANY
from cudasync.driver.device import as_device

if TYPE_CHECKING:
    from cudasync.array.dtypes.supported import DType


def unwritten(shape: tuple[int, ...], dtype: DType, device: Any) -> Array:
    """An uninitialised array, which may be read."""
    if device is CPU:
        return new_on_host(shape, dtype)
    check_size(shape, math.prod(shape) * dtype.itemsize, as_device(device))
    return creation.empty(shape, dtype, device=device)


def zeroed(shape: tuple[int, ...], dtype: DType, device: Any) -> Array:
    """All zeros."""
    if device is CPU:
        made = new_on_host(shape, dtype)
        view_of(made)[...] = 0
        return made
    check_size(shape, math.prod(shape) * dtype.itemsize, as_device(device))
    return creation.zeros(shape, dtype, device=device)


def to_overwrite(shape: tuple[int, ...], dtype: DType, device: Any) -> Array:
    """An array that the next op on it must overwrite whole."""
    if device is CPU:
        return new_on_host(shape, dtype)
    if device is ANY:
        return anywhere(to_overwrite(shape, dtype, as_device(ANY)))
    layout = contiguous(Array, dtype, shape, device)
    check_size(shape, layout.nbytes, device)
    made: Array = new_result(layout)
    return made


def of_host(data: Any, dtype: DType | None, device: Any) -> Array:
    """A copy of host data; Python's floats become float32."""
    if device is CPU:
        return uploaded(creation.as_numpy(data, dtype))
    return creation.array(data, dtype, device=device)
