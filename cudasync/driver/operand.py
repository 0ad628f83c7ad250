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
    """A piece of memory; `device` is None on the host.

    `place` is an address, or for host memory an object with the buffer protocol: the binding finds
    its address quicker than Python can.
    """

    place: Any
    size_bytes: int
    device: Device | None
    is_read_only: bool = False


def memory_of(operand: object, role: str) -> Memory:
    """The memory that `operand` stands for; `role` ("target", "source") is for messages.

    Raises TypeError for anything else, ValueError where it is not C-contiguous, ClosedError for a
    closed buffer.
    """
    if isinstance(operand, np.ndarray):
        return _array(operand, role)
    if isinstance(operand, DeviceBuffer | DeviceView):
        return Memory(operand.ptr, operand.size_bytes, operand.device)
    if isinstance(operand, PinnedBuffer):
        return Memory(operand.ptr, operand.size_bytes, None)
    found = device_array(operand)
    if found is not None:
        device = device_of_address(operand, found.address)
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
    return Memory(view, view.nbytes, None, view.readonly)


def _array(array: np.ndarray[Any, Any], role: str) -> Memory:
    flags = array.flags
    if not flags.c_contiguous:
        raise ValueError(
            f"the {role}, an array of shape {array.shape} with strides {array.strides}, "
            "is not C-contiguous: copy it with numpy.ascontiguousarray first"
        )
    kind = array.dtype.kind
    if kind in _PLAIN_KINDS:
        return Memory(array, array.nbytes, None, not flags.writeable)
    if array.dtype.hasobject:
        raise TypeError(f"the {role} is an array of Python objects")
    # Dates, for one, have no buffer protocol.
    return Memory(address_of(array), array.nbytes, None, not flags.writeable)


def address_of(place: Any) -> int:
    """The address of a `Memory.place`."""
    if isinstance(place, int):
        return place
    address: int = np.asarray(place).__array_interface__["data"][0]
    return address


_PLAIN_KINDS = frozenset("biufc")


def device_of_address(operand: Any, address: int) -> Device:
    """Which device `operand`, another library's array at `address`, is on."""
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
