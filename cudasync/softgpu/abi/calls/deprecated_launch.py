"""Cellar. The launch of CUDA's first years: a program sets shape and arguments one by one.

`cuLaunchKernel` has replaced it; the bindings still have it.
"""

from __future__ import annotations

import ctypes
import struct
from typing import TYPE_CHECKING, Final

from cudasync.softgpu.abi.marshalling.pointers import need
from cudasync.softgpu.abi.stub.registry import export
from cudasync.softgpu.core.driver_types.device_limits import MAX_PARAMETER_BYTES
from cudasync.softgpu.core.driver_types.result_codes import INVALID_VALUE, DriverFailure
from cudasync.softgpu.core.launch.kernel_launch import launch

if TYPE_CHECKING:
    from cudasync.softgpu.core.machine import Machine
    from cudasync.softgpu.core.modules.modules import Function
    from cudasync.softgpu.interface.launch import Dim3

_DEFAULT: Final = 0


class _Prepared:
    """The shape and arguments that were set for a function."""

    def __init__(self, function: Function) -> None:
        self.function = function
        self.block: Dim3 = (1, 1, 1)
        self.shared_bytes = 0
        self.size_bytes = function.kernel.parameter_size
        self.data = bytearray(MAX_PARAMETER_BYTES)


# By handle; a handle is never reused.
_prepared: dict[int, _Prepared] = {}


def _of(machine: Machine, function: int) -> _Prepared:
    found = machine.modules.function(function)
    return _prepared.setdefault(found.handle, _Prepared(found))


def _put(machine: Machine, function: int, offset: int, data: bytes) -> None:
    prepared = _of(machine, function)
    if offset < 0 or offset + len(data) > MAX_PARAMETER_BYTES:
        raise DriverFailure(
            INVALID_VALUE,
            f"{len(data)} bytes at offset {offset} pass the {MAX_PARAMETER_BYTES} of arguments",
        )
    prepared.data[offset : offset + len(data)] = data


@export("cuFuncSetBlockShape")
def cu_func_set_block_shape(machine: Machine, function: int, x: int, y: int, z: int) -> None:
    if min(x, y, z) < 1:
        raise DriverFailure(
            INVALID_VALUE, f"a block needs at least 1 thread in each dimension, not {x}, {y}, {z}"
        )
    _of(machine, function).block = (x, y, z)


@export("cuFuncSetSharedSize")
def cu_func_set_shared_size(machine: Machine, function: int, size: int) -> None:
    prepared = _of(machine, function)
    if size > prepared.function.module.context.device.capability.shared_bytes_optin:
        raise DriverFailure(
            INVALID_VALUE, f"{size} bytes of shared memory are more than a block may have"
        )
    prepared.shared_bytes = size


@export("cuParamSetSize")
def cu_param_set_size(machine: Machine, function: int, size: int) -> None:
    if size > MAX_PARAMETER_BYTES:
        raise DriverFailure(
            INVALID_VALUE, f"a kernel takes at most {MAX_PARAMETER_BYTES} bytes, not {size}"
        )
    _of(machine, function).size_bytes = size


@export("cuParamSeti")
def cu_param_seti(machine: Machine, function: int, offset: int, value: int) -> None:
    _put(machine, function, offset, struct.pack("<I", value & 0xFFFFFFFF))


@export("cuParamSetf")
def cu_param_setf(machine: Machine, function: int, offset: int, value: float) -> None:
    _put(machine, function, offset, struct.pack("<f", value))


@export("cuParamSetv")
def cu_param_setv(machine: Machine, function: int, offset: int, data: int, size: int) -> None:
    if size > MAX_PARAMETER_BYTES:
        raise DriverFailure(
            INVALID_VALUE, f"a kernel takes at most {MAX_PARAMETER_BYTES} bytes, not {size}"
        )
    need(data, size)
    _put(machine, function, offset, ctypes.string_at(data, size))


@export("cuLaunch")
def cu_launch(machine: Machine, function: int) -> None:
    cu_launch_grid_async(machine, function, 1, 1, _DEFAULT)


@export("cuLaunchGrid")
def cu_launch_grid(machine: Machine, function: int, width: int, height: int) -> None:
    cu_launch_grid_async(machine, function, width, height, _DEFAULT)


@export("cuLaunchGridAsync")
def cu_launch_grid_async(
    machine: Machine, function: int, width: int, height: int, stream: int
) -> None:
    prepared = _of(machine, function)
    kernel = prepared.function.kernel
    if min(width, height) < 1:
        raise DriverFailure(
            INVALID_VALUE, f"a grid needs at least 1 block in each dimension, not {width}, {height}"
        )
    if prepared.size_bytes < kernel.parameter_size:
        raise DriverFailure(
            INVALID_VALUE,
            f"kernel {kernel.name} takes {kernel.parameter_size} bytes of arguments, not "
            f"{prepared.size_bytes}: call cuParamSetSize",
        )
    launch(
        machine,
        prepared.function,
        machine.streams.get(stream),
        (width, height, 1),
        prepared.block,
        prepared.shared_bytes,
        bytes(prepared.data[: kernel.parameter_size]),
    )
