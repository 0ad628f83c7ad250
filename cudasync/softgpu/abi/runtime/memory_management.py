"""Cellar, abi. Runtime API, Memory Management: allocations, and copies of plain ranges."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cudasync.softgpu.abi.runtime.table import driver_function, forward, runtime_function
from cudasync.softgpu.core.driver_types.result_codes import DriverFailure

if TYPE_CHECKING:
    from cudasync.softgpu.core.machine import Machine

_INVALID_MEMCPY_DIRECTION: Final = 21
_DIRECTIONS: Final = range(5)

forward(
    """
    cudaHostAlloc pzu cuMemHostAlloc
    cudaHostGetDevicePointer ppu cuMemHostGetDevicePointer
    cudaHostGetFlags pp cuMemHostGetFlags
    cudaHostRegister pzu cuMemHostRegister
    cudaHostUnregister p cuMemHostUnregister
    cudaMalloc pz cuMemAlloc
    cudaMallocHost pz cuMemAllocHost
    cudaMallocManaged pzu cuMemAllocManaged
    cudaMemAdvise pzil cuMemAdvise 12020
    cudaMemGetInfo pp
    cudaMemPrefetchAsync pzlup cuMemPrefetchAsync 12020
    cudaMemRangeGetAttribute pzipz
    cudaMemRangeGetAttributes pppzpz
    """
)


def check_direction(direction: int) -> None:
    """Refuse a number that is not a cudaMemcpyKind; the addresses decide the actual direction."""
    if direction not in _DIRECTIONS:
        raise DriverFailure(_INVALID_MEMCPY_DIRECTION, f"there is no direction {direction}")


@runtime_function("cudaFree", "p")
def cuda_free(machine: Machine, address: int) -> int | None:
    # A free of null is the customary way to make the runtime initialise.
    return driver_function("cuMemFree")(machine, address) if address else None


@runtime_function("cudaFreeHost", "p")
def cuda_free_host(machine: Machine, address: int) -> int | None:
    return driver_function("cuMemFreeHost")(machine, address) if address else None


@runtime_function("cudaMemcpy", "ppzi")
def cuda_memcpy(
    machine: Machine, target: int, source: int, size: int, direction: int
) -> int | None:
    check_direction(direction)
    return driver_function("cuMemcpy")(machine, target, source, size)


@runtime_function("cudaMemcpyAsync", "ppzip")
def cuda_memcpy_async(
    machine: Machine, target: int, source: int, size: int, direction: int, stream: int
) -> int | None:
    check_direction(direction)
    return driver_function("cuMemcpyAsync")(machine, target, source, size, stream)


@runtime_function("cudaMemset", "piz")
def cuda_memset(machine: Machine, address: int, value: int, size: int) -> int | None:
    return driver_function("cuMemsetD8")(machine, address, value & 0xFF, size)


@runtime_function("cudaMemsetAsync", "pizp")
def cuda_memset_async(
    machine: Machine, address: int, value: int, size: int, stream: int
) -> int | None:
    return driver_function("cuMemsetD8Async")(machine, address, value & 0xFF, size, stream)
