"""Floor 1. Operands of copies and fills: objects that stand for a piece of memory.

On a device: DeviceBuffer, DeviceView, objects with `__cuda_array_interface__`. On the host:
PinnedBuffer, NumPy arrays, objects with the buffer protocol. All must be C-contiguous.
"""

from __future__ import annotations

from ctypes import addressof, c_char
from typing import Any, TypeAlias

import numpy as np
from cuda.bindings import driver
from numpy import ndarray

from cudasync.driver.device import Device
from cudasync.driver.interchange.protocols import device_array
from cudasync.driver.memory.buffer import DeviceBuffer, DeviceView
from cudasync.driver.memory.pinned import PinnedBuffer
from cudasync.driver.streams.current_streams import current_device

_from_buffer = c_char.from_buffer

# A piece of memory: its place, its size in bytes, its device (None on the host), and whether it is
# read-only. On the host the place is an address, or an object with the buffer protocol, whose
# address the binding finds. A plain tuple, since each copy makes two.
Memory: TypeAlias = tuple[Any, int, Device | None, bool]


def memory_of(operand: object, role: str, stream: object) -> Memory:
    """The memory that `operand` stands for; `role` ("target", "source") is for messages.

    Objects of higher floors have `__cudasync_memory__(stream)`, which refuses a use on `stream`
    out of order. A read of an array's `__cuda_array_interface__` would tell the engine that another
    library is about to use the array.

    Raises TypeError for anything else, ValueError for memory that is not C-contiguous, ClosedError
    for a closed buffer.
    """
    kind = type(operand)
    # The common exact types first, since other checks take longer.
    if kind is ndarray:
        array: Any = operand
        if array.dtype.kind in _PLAIN_KINDS:
            try:
                # The fastest way to the address. It works only if the array is C-contiguous,
                # writable and not empty; otherwise `_array` decides.
                return addressof(_from_buffer(array)), array.nbytes, None, False
            except (TypeError, ValueError):
                pass
    elif kind is DeviceBuffer:
        buffer: Any = operand
        return buffer.ptr, buffer.size_bytes, buffer.device, False
    ours: Any = getattr(kind, "__cudasync_memory__", None)
    if ours is not None:
        address, size_bytes, is_read_only = ours(operand, stream)
        return address, size_bytes, operand.device, is_read_only  # type: ignore[attr-defined]
    if isinstance(operand, ndarray):
        return _array(operand, role)
    if isinstance(operand, DeviceBuffer | DeviceView):
        return operand.ptr, operand.size_bytes, operand.device, False
    if isinstance(operand, PinnedBuffer):
        return operand.ptr, operand.size_bytes, None, False
    found = device_array(operand)
    if found is not None:
        device = device_of_address(operand, found.address)
        return found.address, found.size_bytes, device, found.is_read_only
    try:
        view = memoryview(operand)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(
            f"the {role} is a {type(operand).__name__}, not a buffer, an array, or an object "
            f"with __cuda_array_interface__ or the buffer protocol"
        ) from None
    if not view.c_contiguous:
        raise ValueError(f"the {role} is not C-contiguous: give a contiguous copy")
    return view, view.nbytes, None, view.readonly


def _array(array: ndarray[Any, Any], role: str) -> Memory:
    flags = array.flags
    if not flags.c_contiguous:
        raise ValueError(
            f"the {role}, an array of shape {array.shape} with strides {array.strides}, "
            "is not C-contiguous: copy it with numpy.ascontiguousarray first"
        )
    if array.dtype.hasobject:
        raise TypeError(f"the {role} is an array of Python objects: give a numeric dtype")
    if array.dtype.kind in _PLAIN_KINDS:
        return array, array.nbytes, None, not flags.writeable
    # Some dtypes, such as dates, have no buffer protocol.
    return address_of(array), array.nbytes, None, not flags.writeable


def address_of(place: Any) -> int:
    """The address of the place of a piece of memory."""
    if isinstance(place, int):
        return place
    address: int = np.asarray(place).__array_interface__["data"][0]
    return address


_PLAIN_KINDS = frozenset("biufc")


def device_of_address(operand: Any, address: int) -> Device:
    """The device of `operand`, another library's array at `address`."""
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
