"""Floor 4. Making arrays: from host data, empty, or filled with zeros."""

from __future__ import annotations

import math
import operator
from typing import TYPE_CHECKING, Any

import numpy as np

from cudasync.array.allocation import Allocation, DeviceBytes
from cudasync.array.array import Array
from cudasync.array.copies.staging import staging_of
from cudasync.array.host.memory import CPU, view_of
from cudasync.driver import ANY, memcpy_async, memset_async
from cudasync.driver.device import as_device
from cudasync.driver.memory.buffer import checked_size
from cudasync.driver.memory.strides import contiguous_strides
from cudasync.engine import engine
from cudasync.engine.op import OpKind
from cudasync.graph.node import Node

if TYPE_CHECKING:
    from typing import Literal, TypeAlias

    from numpy.typing import ArrayLike, DTypeLike

    from cudasync.driver import Stream
    from cudasync.driver.device import DeviceLike

    Place: TypeAlias = DeviceLike | Literal["cpu"]

# NumPy's dtypes for Python's numbers, and ours.
_OF_PYTHON = {
    np.dtype(np.float64): np.dtype(np.float32),
    np.dtype(np.complex128): np.dtype(np.complex64),
}
_NUMBERS = frozenset({bool, int, float, complex})


def array(data: ArrayLike, dtype: DTypeLike | None = None, *, device: Place = 0) -> Array:
    """An array on a device, or with "cpu" on the CPU, with a copy of `data`: anything that NumPy
    can convert to an array.

    Without a `dtype`, Python's floats become float32 and its complex numbers complex64, as in the
    other creation functions; ints become int64, bools bool. Data with a dtype keeps it.

    `data` is read before this returns and may change at once; the copy to the device is
    asynchronous. Raises TypeError for dtypes without a fixed size, CudaError when device memory is
    exhausted.
    """
    host = as_numpy(data, dtype)
    if device == CPU:
        from cudasync.array.host.array import uploaded  # Built upon this file.

        return uploaded(host)
    made = empty(host.shape, host.dtype, device=device)
    if made.nbytes == 0:
        return made
    # Two threads that come first together still share one staging.
    staged, lend_until = staging_of(made.device).fill(host)
    target = DeviceBytes(made.ptr, made.nbytes, made.device)

    def upload(stream: Stream) -> None:
        memcpy_async(target, staged, stream=stream)

    op = engine()._push(upload, OpKind.HTOD, writes=[made], name="array", device=made.device)
    lend_until(op)
    return made


def as_numpy(data: ArrayLike, dtype: DTypeLike | None) -> np.ndarray[Any, Any]:
    """`data` as a NumPy array, with the dtype that `array` documents; it may be `data` itself."""
    host = np.asarray(data, dtype)
    if dtype is None and host.dtype in _OF_PYTHON and _is_of_python(data):
        host = host.astype(_OF_PYTHON[host.dtype])
    return host


def empty(shape: Any, dtype: DTypeLike = np.float32, *, device: Place = 0) -> Array:
    """An uninitialised array on a device, or on the CPU ("cpu"). Does not wait.

    With `cs.ANY`, in `with cs.graph()`, instantiation chooses the device of the work on it. Raises
    OutOfMemoryError, which is a MemoryError, if the device has no room, and MemoryError for more
    bytes than there are addresses. No later wait raises either again.
    """
    kind = np.dtype(dtype)
    if kind.hasobject:
        raise TypeError(
            f"dtype {kind} has no fixed size, so an array cannot hold it: give another dtype"
        )
    sizes = _shape(shape)
    if device == CPU:
        from cudasync.array.host.array import new_on_host

        return new_on_host(sizes, kind)
    where = as_device(device)  # type: ignore[arg-type]
    # The driver refuses an allocation of no bytes; one byte keeps the address valid.
    size = checked_size(max(1, math.prod(sizes) * kind.itemsize))
    allocation = Allocation(engine(), where, size)
    strides = contiguous_strides(sizes, kind.itemsize)
    made = Array(allocation, allocation.buffer.ptr, sizes, strides, kind)
    if device is ANY:
        # Imported late, because only recordings need it.
        from cudasync.array.any_device import anywhere

        made = anywhere(made)
    return made


def zeros(shape: Any, dtype: DTypeLike = np.float32, *, device: Place = 0) -> Array:
    """An array of zeros on a device, or with "cpu" on the CPU. Does not wait."""
    made = empty(shape, dtype, device=device)
    if device == CPU:
        view_of(made)[...] = 0
    elif made.nbytes:
        target = DeviceBytes(made.ptr, made.nbytes, made.device)

        def clear(stream: Stream) -> None:
            memset_async(target, 0, stream=stream)

        op: Any = engine()._push(
            clear, OpKind.KERNEL, writes=[made], name="zeros", device=made.device
        )
        if op.__class__ is Node:
            # Imported late, because only recordings need it.
            from cudasync.graph.transfers import Transfer

            op.transfer = Transfer((made.region, made.device))
    return made


def empty_like(like: Array) -> Array:
    """`empty` with the shape, dtype and device of `like`; always contiguous."""
    return empty(like.shape, like.dtype, device=_device_of(like))


def zeros_like(like: Array) -> Array:
    """`zeros` with the shape, dtype and device of `like`; always contiguous."""
    return zeros(like.shape, like.dtype, device=_device_of(like))


def _device_of(like: Array) -> Any:
    # Only recordings load this.
    from cudasync.array.any_device import is_anywhere

    return ANY if is_anywhere(like) else like.device


def _is_of_python(data: Any) -> bool:
    """True if `data` holds nothing but Python numbers, which have no width of their own."""
    if not isinstance(data, (list, tuple)):
        return type(data) in _NUMBERS
    kinds = set(map(type, data))
    return kinds <= _NUMBERS or all(map(_is_of_python, data))


def _shape(shape: Any) -> tuple[int, ...]:
    given = shape if isinstance(shape, (tuple, list)) else (shape,)
    lengths = tuple(operator.index(n) for n in given)
    if any(n < 0 for n in lengths):
        raise ValueError(f"a shape cannot be negative: {lengths}")
    return lengths
