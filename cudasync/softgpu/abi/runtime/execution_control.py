"""Cellar, abi. Runtime API, Execution Control."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Final

from cudasync.softgpu.abi.marshalling.pointers import structure_at
from cudasync.softgpu.abi.runtime.table import driver_function, forward, runtime_function

if TYPE_CHECKING:
    from cudasync.softgpu.core.machine import Machine

forward(
    """
    cudaFuncGetName pp
    cudaFuncGetParamCount pp
    cudaFuncGetParamInfo pzpp
    cudaFuncSetAttribute pii
    cudaFuncSetCacheConfig pi
    cudaFuncSetSharedMemConfig pi
    cudaLaunchHostFunc_v2 pppu cuLaunchHostFunc 13010
    """
)


class FuncAttributes(ctypes.Structure):
    """cudaFuncAttributes."""

    _fields_ = (
        ("shared_bytes", ctypes.c_size_t),
        ("constant_bytes", ctypes.c_size_t),
        ("local_bytes", ctypes.c_size_t),
        ("numbers", ctypes.c_int * 13),
        ("reserved", ctypes.c_int * 16),
    )


# CUfunction_attribute of the three sizes, and of the numbers in their order.
_SIZES: Final = (1, 2, 3)
_NUMBERS: Final = (0, 4, 5, 6, 7, 8, 9)


@runtime_function("cudaFuncGetAttributes", "pp")
def cuda_func_get_attributes(machine: Machine, attributes: int, function: int) -> None:
    """The attributes of a kernel; zeros for clusters, which do not exist here."""
    found = structure_at(FuncAttributes, attributes)
    ctypes.memset(attributes, 0, ctypes.sizeof(found))
    value = ctypes.c_int()

    def ask(attribute: int) -> int:
        driver_function("cuFuncGetAttribute")(machine, ctypes.addressof(value), attribute, function)
        return value.value

    found.shared_bytes, found.constant_bytes, found.local_bytes = map(ask, _SIZES)
    for index, attribute in enumerate(_NUMBERS):
        found.numbers[index] = ask(attribute)


@runtime_function("cudaLaunchHostFunc", "ppp")
def cuda_launch_host_func(machine: Machine, stream: int, function: int, data: int) -> int | None:
    return driver_function("cuLaunchHostFunc", 10000)(machine, stream, function, data)
