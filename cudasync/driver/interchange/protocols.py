"""Floor 1. The protocols with which CUDA libraries in Python exchange streams and memory.

`__cuda_stream__` is from cuda.core, `__cuda_array_interface__` from numba (version 3), and the
device codes are DLPack's.
"""

from __future__ import annotations

import math
import operator
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from cuda.bindings import driver

from cudasync.driver.context import contexts
from cudasync.driver.device import Device
from cudasync.driver.memory.strides import is_contiguous
from cudasync.driver.probe import ensure_driver
from cudasync.driver.result import check

# DLDeviceType of dlpack.h.
DLPACK_CPU = 1
DLPACK_CUDA = 2
DLPACK_CUDA_HOST = 3
DLPACK_CUDA_MANAGED = 13


@runtime_checkable
class SupportsCudaStream(Protocol):
    """An object that stands for a CUDA stream."""

    def __cuda_stream__(self) -> tuple[int, int]:
        """(0, handle): the protocol's version, and the CUstream as an integer."""


def stream_handle(stream: object) -> int:
    """The handle from `__cuda_stream__`.

    Raises TypeError for an object without it, ValueError for an unknown version.
    """
    if isinstance(stream, driver.CUstream):
        return int(stream)
    protocol: Any = getattr(stream, "__cuda_stream__", None)
    if protocol is None:
        raise TypeError(f"a {type(stream).__name__} is not a stream: it has no __cuda_stream__")
    # It was an attribute before it became a method.
    told = protocol() if callable(protocol) else protocol
    version, handle = told
    if version != 0:
        raise ValueError(f"__cuda_stream__ has version {version}, and cudasync knows only 0")
    return int(handle)


def device_of_stream(handle: int) -> Device:
    """The device that a stream belongs to; not for the handle of a default stream.

    Raises CudaError for a handle that the driver does not know. (cuStreamGetCtx, cuCtxGetDevice)
    """
    ensure_driver()
    found = check(driver.cuStreamGetCtx(driver.CUstream(handle)), "cuStreamGetCtx")
    # Later bindings also return the green context.
    raw = found[0] if isinstance(found, tuple) else found
    for context in contexts():
        if context.is_of(raw):
            return Device(context.ordinal)
    check(driver.cuCtxPushCurrent(raw), "cuCtxPushCurrent")
    try:
        return Device(int(check(driver.cuCtxGetDevice(), "cuCtxGetDevice")))
    finally:
        driver.cuCtxPopCurrent()


def awaited_stream(interface: dict[str, Any]) -> int | None:
    """The stream that a `__cuda_array_interface__` names: its memory is ready after that stream's
    present work. None if it is ready at once.

    Raises ValueError for 0, which the protocol forbids as ambiguous, and for a negative handle.
    """
    told = interface.get("stream")
    if told is None:
        return None
    handle = operator.index(told)
    if handle <= 0:
        raise ValueError(
            f"__cuda_array_interface__ names stream {handle}: it must be 1 (the legacy default "
            f"stream), 2 (the per-thread default stream) or a handle"
        )
    return handle


class DeviceArray(NamedTuple):
    """The description of contiguous memory by `__cuda_array_interface__`."""

    address: int
    size_bytes: int
    is_read_only: bool


def device_array(operand: object) -> DeviceArray | None:
    """The memory behind `__cuda_array_interface__`; None for an object without it.

    Raises ValueError if the memory is not C-contiguous.
    """
    described: Any = getattr(operand, "__cuda_array_interface__", None)
    if described is None:
        return None
    shape = tuple(described["shape"])
    item_size = np.dtype(described["typestr"]).itemsize
    strides = described.get("strides")
    if not is_contiguous(shape, strides, item_size):
        raise ValueError(
            f"the device array of shape {shape} with strides {tuple(strides)} is not C-contiguous"
        )
    address, is_read_only = described["data"]
    return DeviceArray(int(address or 0), math.prod(shape) * item_size, bool(is_read_only))
