"""Cellar, abi. Runtime functions of compiled programs: launches, and kernels by host functions."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Final

from cudasync.softgpu.abi.marshalling.pointers import need, put_i32, put_u64, structure_at
from cudasync.softgpu.abi.native.registration import REGISTRATIONS
from cudasync.softgpu.abi.runtime.table import driver_function, enter_plain, runtime_function

if TYPE_CHECKING:
    from cudasync.softgpu.core.machine import Machine

# A dim3 is three words, in two registers: x and y, then z.
_LAUNCH: Final = "plulupzp"
_VERSION: Final = 13000
_LOW: Final = 0xFFFFFFFF
_handles = REGISTRATIONS.handles


class _Config(ctypes.Structure):
    """cudaLaunchConfig_t."""

    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared_bytes", ctypes.c_size_t),
        ("stream", ctypes.c_uint64),
        ("attributes", ctypes.c_uint64),
        ("attribute_count", ctypes.c_uint),
    )


class _DriverConfig(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared_bytes", ctypes.c_uint),
        ("stream", ctypes.c_uint64),
        ("attributes", ctypes.c_uint64),
        ("attribute_count", ctypes.c_uint),
    )


def _launch(
    machine: Machine,
    host: int,
    grid_xy: int,
    grid_z: int,
    block_xy: int,
    block_z: int,
    parameters: int,
    shared_bytes: int,
    stream: int,
) -> int | None:
    kernel = _handles.get(host) or REGISTRATIONS.kernel(machine, host)
    return driver_function("cuLaunchKernel")(
        machine,
        kernel,
        grid_xy & _LOW,
        grid_xy >> 32,
        grid_z,
        block_xy & _LOW,
        block_xy >> 32,
        block_z,
        shared_bytes,
        stream,
        parameters,
        0,
    )


# The first takes the handle of a kernel, from `__cudaGetKernel`.
runtime_function("__cudaLaunchKernel", _LAUNCH)(_launch)
runtime_function("cudaLaunchKernel", _LAUNCH)(_launch)


@runtime_function("cudaLaunchCooperativeKernel", _LAUNCH)
def cuda_launch_cooperative_kernel(
    machine: Machine,
    host: int,
    grid_xy: int,
    grid_z: int,
    block_xy: int,
    block_z: int,
    parameters: int,
    shared_bytes: int,
    stream: int,
) -> int | None:
    grid = grid_xy & _LOW, grid_xy >> 32, grid_z
    block = block_xy & _LOW, block_xy >> 32, block_z
    return driver_function("cuLaunchCooperativeKernel")(
        machine,
        REGISTRATIONS.kernel(machine, host),
        *grid,
        *block,
        shared_bytes,
        stream,
        parameters,
    )


@runtime_function("cudaLaunchKernelExC", "ppp")
def cuda_launch_kernel_ex_c(
    machine: Machine, config: int, host: int, parameters: int
) -> int | None:
    given = structure_at(_Config, config)
    shared_bytes = given.shared_bytes & _LOW
    of_driver = _DriverConfig(
        given.grid, given.block, shared_bytes, given.stream, given.attributes, given.attribute_count
    )
    return driver_function("cuLaunchKernelEx")(
        machine, ctypes.addressof(of_driver), REGISTRATIONS.kernel(machine, host), parameters, 0
    )


def _kernel(machine: Machine, kernel: int, host: int) -> None:
    need(kernel)
    # The compiler's code launches what stands there, whatever this call returns. The launch by the
    # host address then fails with the same reason.
    put_u64(kernel, host)
    put_u64(kernel, REGISTRATIONS.kernel(machine, host))


runtime_function("__cudaGetKernel", "pp")(_kernel)
runtime_function("cudaGetKernel", "pp")(_kernel)


@runtime_function("cudaGetFuncBySymbol", "pp")
def cuda_get_func_by_symbol(machine: Machine, function: int, host: int) -> None:
    need(function)
    kernel = REGISTRATIONS.kernel(machine, host)
    put_u64(function, machine.modules.function(kernel).handle)


# The version in cuda_runtime_api.h of CUDA 13.0.
@runtime_function("cudaRuntimeGetVersion", "p", in_context=False)
def cuda_runtime_get_version(_machine: Machine, version: int) -> None:
    put_i32(version, _VERSION)


enter_plain("cudaSetValidDevices", "pi", lambda _machine, _devices, _count: 0)
