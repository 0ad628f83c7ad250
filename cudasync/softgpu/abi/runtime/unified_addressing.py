"""Cellar, abi. Runtime API, Unified Addressing."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Final

from cudasync.softgpu.abi.marshalling.pointers import structure_at
from cudasync.softgpu.abi.runtime.table import driver_function, runtime_function

if TYPE_CHECKING:
    from cudasync.softgpu.core.machine import Machine

# CUpointer_attribute, and cudaMemoryTypeManaged.
_MEMORY_TYPE, _DEVICE_POINTER, _HOST_POINTER, _IS_MANAGED, _ORDINAL = 2, 3, 4, 8, 9
_MANAGED: Final = 3


class PointerAttributes(ctypes.Structure):
    """cudaPointerAttributes."""

    _fields_ = (
        ("type", ctypes.c_int),
        ("device", ctypes.c_int),
        ("device_pointer", ctypes.c_void_p),
        ("host_pointer", ctypes.c_void_p),
    )


@runtime_function("cudaPointerGetAttributes", "pp")
def cuda_pointer_get_attributes(machine: Machine, attributes: int, address: int) -> int | None:
    """The properties of an address; an unknown address is described as unregistered."""
    found = structure_at(PointerAttributes, attributes)
    wanted = (_MEMORY_TYPE, _ORDINAL, _DEVICE_POINTER, _HOST_POINTER, _IS_MANAGED)
    answers = [ctypes.c_uint64() for _ in wanted]
    numbers = (ctypes.c_int * len(wanted))(*wanted)
    places = (ctypes.c_uint64 * len(wanted))(*(ctypes.addressof(each) for each in answers))
    call = driver_function("cuPointerGetAttributes")
    code = call(machine, len(wanted), ctypes.addressof(numbers), ctypes.addressof(places), address)
    kind, device, on_device, on_host, is_managed = (each.value for each in answers)
    found.type = _MANAGED if is_managed else kind
    found.device = ctypes.c_int(device & 0xFFFFFFFF).value
    # For memory that is not registered, the host's pointer is the address itself.
    found.device_pointer, found.host_pointer = on_device, on_host if kind else address
    return code
