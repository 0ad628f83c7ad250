"""Cellar, abi. Runtime API, Device Management."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.softgpu.abi.marshalling.pointers import put_i32
from cudasync.softgpu.abi.runtime.table import (
    driver_function,
    forward,
    own_device,
    runtime_function,
    use_device,
)

if TYPE_CHECKING:
    from cudasync.softgpu.core.machine import Machine

forward(
    """
    cudaDeviceGetStreamPriorityRange pp cuCtxGetStreamPriorityRange
    cudaDeviceGetLimit pi cuCtxGetLimit
    cudaDeviceSetLimit iz cuCtxSetLimit
    cudaDeviceGetCacheConfig p cuCtxGetCacheConfig
    cudaDeviceSetCacheConfig i cuCtxSetCacheConfig
    cudaDeviceGetDefaultMemPool pi
    cudaDeviceGetMemPool pi
    cudaDeviceSetMemPool ip
    """
)


@runtime_function("cudaGetDeviceCount", "p", in_context=False)
def cuda_get_device_count(machine: Machine, count: int) -> None:
    put_i32(count, len(machine.devices))


@runtime_function("cudaGetDevice", "p", in_context=False)
def cuda_get_device(machine: Machine, device: int) -> None:
    put_i32(device, own_device(machine))


@runtime_function("cudaSetDevice", "i", in_context=False)
def cuda_set_device(machine: Machine, device: int) -> None:
    use_device(machine, device)


@runtime_function("cudaDeviceGetAttribute", "pii", in_context=False)
def cuda_device_get_attribute(machine: Machine, value: int, attribute: int, device: int) -> None:
    driver_function("cuDeviceGetAttribute")(machine, value, attribute, device)


@runtime_function("cudaDeviceSynchronize", "")
def cuda_device_synchronize(machine: Machine) -> int | None:
    return driver_function("cuCtxSynchronize", 2000)(machine)


@runtime_function("cudaDeviceReset", "")
def cuda_device_reset(machine: Machine) -> None:
    current = machine.current()
    assert current is not None
    machine.reset_primary(current.device)


@runtime_function("cudaDeviceGetPCIBusId", "pii", in_context=False)
def cuda_device_get_pci_bus_id(machine: Machine, text: int, size: int, device: int) -> None:
    driver_function("cuDeviceGetPCIBusId")(machine, text, size, device)


@runtime_function("cudaDeviceGetByPCIBusId", "pp", in_context=False)
def cuda_device_get_by_pci_bus_id(machine: Machine, device: int, text: int) -> None:
    driver_function("cuDeviceGetByPCIBusId")(machine, device, text)


@runtime_function("cudaInitDevice", "iuu", in_context=False)
def cuda_init_device(machine: Machine, ordinal: int, _device_flags: int, _flags: int) -> None:
    machine.use_primary(machine.device(ordinal))


@runtime_function("cudaSetDeviceFlags", "u")
def cuda_set_device_flags(machine: Machine, flags: int) -> int | None:
    ordinal = machine.context().device.ordinal
    return driver_function("cuDevicePrimaryCtxSetFlags", 11000)(machine, ordinal, flags)


@runtime_function("cudaGetDeviceFlags", "p")
def cuda_get_device_flags(machine: Machine, flags: int) -> int | None:
    return driver_function("cuCtxGetFlags")(machine, flags)
