"""Floor 1. What a copy is from or to: any object that stands for a piece of memory.

On a device: DeviceBuffer, DeviceView, anything with `__cuda_array_interface__`. On the host:
PinnedBuffer, NumPy arrays, anything with the buffer protocol. All of it C-contiguous.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from cuda.bindings import driver

from cudasync.driver.buffer import DeviceBuffer, DeviceView
from cudasync.driver.current import current_device
from cudasync.driver.device import Device
from cudasync.driver.interop import device_array
from cudasync.driver.pinned import PinnedBuffer


class Memory(NamedTuple):
    """A piece of memory; `device` is None on the host."""

    address: int
    size_bytes: int
    device: Device | None
    is_read_only: bool = False


def memory_of(operand: object, role: str) -> Memory:
    """The memory that `operand` stands for; `role` ("target", "source") is for messages.

    Raises TypeError for anything else, ValueError where it is not C-contiguous, ClosedError for a
    closed buffer.
    """
    if isinstance(operand, DeviceBuffer | DeviceView):
        return Memory(operand.ptr, operand.size_bytes, operand.device)
    if isinstance(operand, np.ndarray):
        return _array(operand, role)
    if isinstance(operand, PinnedBuffer):
        return Memory(operand.ptr, operand.size_bytes, None)
    found = device_array(operand)
    if found is not None:
        device = _device_of(operand, found.address)
        return Memory(found.address, found.size_bytes, device, found.is_read_only)
    try:
        view = memoryview(operand)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(
            f"the {role} is a {type(operand).__name__}, which is neither a buffer, nor an array, "
            "nor anything with __cuda_array_interface__ or the buffer protocol"
        ) from None
    if not view.c_contiguous:
        raise ValueError(f"the {role} is not C-contiguous")
    return _array(np.asarray(view), role)


def _array(array: np.ndarray[Any, Any], role: str) -> Memory:
    if array.dtype.hasobject:
        raise TypeError(f"the {role} is an array of Python objects")
    described = array.__array_interface__
    # NumPy gives strides for what is not C-contiguous, and only then.
    if described["strides"] is not None:
        raise ValueError(
            f"the {role}, an array of shape {array.shape} with strides {array.strides}, "
            "is not C-contiguous: copy it with numpy.ascontiguousarray first"
        )
    address, is_read_only = described["data"]
    return Memory(address, array.nbytes, None, is_read_only)


def _device_of(operand: Any, address: int) -> Device:
    """Which device another library's array is on."""
    device = getattr(operand, "device", None)
    if isinstance(device, Device):
        return device
    if address:
        current = current_device()
        current.context.enter()
        attribute = driver.CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
        code, ordinal = driver.cuPointerGetAttribute(attribute, address)
        if not code and ordinal >= 0:
            return Device(ordinal)
    return current_device()
