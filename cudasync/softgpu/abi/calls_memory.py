"""Cellar. Driver calls that allocate, free and describe memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.softgpu.abi.registry import export
from cudasync.softgpu.abi.values import get_i32, get_u64, need, offer_u64, put_i32, put_u32, put_u64
from cudasync.softgpu.core.memory import MemoryKind
from cudasync.softgpu.core.results import INVALID_VALUE, DriverFailure

if TYPE_CHECKING:
    from cudasync.softgpu.core.machine import Machine

_PITCH_BYTES = 512


@export("cuMemAlloc")
def cu_mem_alloc(machine: Machine, address: int, size: int) -> None:
    need(address)
    put_u64(address, machine.memory.allocate_device(size).start)


@export("cuMemAllocPitch")
def cu_mem_alloc_pitch(
    machine: Machine, address: int, pitch: int, width: int, height: int, _element: int
) -> None:
    need(address)
    row = -(-width // _PITCH_BYTES) * _PITCH_BYTES
    put_u64(pitch, row)
    put_u64(address, machine.memory.allocate_device(row * height).start)


@export("cuMemFree")
def cu_mem_free(machine: Machine, address: int) -> None:
    machine.memory.free(address)


@export("cuMemAllocAsync")
def cu_mem_alloc_async(machine: Machine, address: int, size: int, stream: int) -> None:
    need(address)
    put_u64(address, machine.memory.allocate_async(size, machine.streams.get(stream)).start)


@export("cuMemFreeAsync")
def cu_mem_free_async(machine: Machine, address: int, stream: int) -> None:
    machine.memory.free_async(address, machine.streams.get(stream))


@export("cuMemHostAlloc")
def cu_mem_host_alloc(machine: Machine, address: int, size: int, flags: int) -> None:
    need(address)
    put_u64(address, machine.memory.allocate_host(size, MemoryKind.PINNED, flags).start)


@export("cuMemAllocHost")
def cu_mem_alloc_host(machine: Machine, address: int, size: int) -> None:
    cu_mem_host_alloc(machine, address, size, 0)


@export("cuMemFreeHost")
def cu_mem_free_host(machine: Machine, address: int) -> None:
    machine.memory.free_host(address)


@export("cuMemAllocManaged")
def cu_mem_alloc_managed(machine: Machine, address: int, size: int, flags: int) -> None:
    need(address)
    if flags not in (1, 2):
        raise DriverFailure(INVALID_VALUE, "the flags must say global or host")
    put_u64(address, machine.memory.allocate_host(size, MemoryKind.MANAGED, flags).start)


@export("cuMemHostRegister")
def cu_mem_host_register(machine: Machine, address: int, size: int, flags: int) -> None:
    machine.memory.register(address, size, flags)


@export("cuMemHostUnregister")
def cu_mem_host_unregister(machine: Machine, address: int) -> None:
    machine.memory.unregister(address)


@export("cuMemHostGetDevicePointer")
def cu_mem_host_get_device_pointer(machine: Machine, device: int, host: int, _flags: int) -> None:
    # Unified addressing: the same number, if it is memory that devices can see.
    found = machine.memory.find(host)
    if found is None or not found.kind.is_host:
        raise DriverFailure(INVALID_VALUE, f"{host:#x} is not pinned or registered")
    put_u64(device, host)


@export("cuMemHostGetFlags")
def cu_mem_host_get_flags(machine: Machine, flags: int, host: int) -> None:
    found = machine.memory.find(host)
    if found is None or not found.kind.is_host:
        raise DriverFailure(INVALID_VALUE, f"{host:#x} is not pinned or registered")
    put_u32(flags, found.flags)


@export("cuMemGetInfo")
def cu_mem_get_info(machine: Machine, free: int, total: int) -> None:
    device = machine.context().device
    offer_u64(free, device.total_bytes - device.memory.arena.used_bytes)
    offer_u64(total, device.total_bytes)


@export("cuMemGetAddressRange")
def cu_mem_get_address_range(machine: Machine, base: int, size: int, address: int) -> None:
    place = machine.memory.place(address, 1)
    if place.allocation is not None:
        offer_u64(base, place.allocation.start)
        offer_u64(size, place.allocation.size_bytes)


@export("cuMemPrefetchAsync", 8000, "CUdeviceptr, size_t, CUdevice, CUstream")
def cu_mem_prefetch_async(
    machine: Machine, address: int, size: int, _device: int, stream: int
) -> None:
    machine.streams.get(stream)
    machine.memory.place(address, size)


@export("cuMemPrefetchAsync", 12020, "CUdeviceptr, size_t, CUmemLocation, unsigned int, CUstream")
def cu_mem_prefetch_async_v2(
    machine: Machine, address: int, size: int, _location: int, _flags: int, stream: int
) -> None:
    cu_mem_prefetch_async(machine, address, size, 0, stream)


@export("cuMemAdvise", 8000, "CUdeviceptr, size_t, CUmem_advise, CUdevice")
@export("cuMemAdvise", 12020, "CUdeviceptr, size_t, CUmem_advise, CUmemLocation")
def cu_mem_advise(machine: Machine, address: int, size: int, _advice: int, _location: int) -> None:
    machine.memory.place(address, size)


# Pools: each device has one, which is its default; sizes are those of the whole device.


@export("cuDeviceGetDefaultMemPool")
def cu_device_get_default_mem_pool(machine: Machine, pool: int, device: int) -> None:
    put_u64(pool, machine.device(device).pool.handle)


@export("cuDeviceGetMemPool")
def cu_device_get_mem_pool(machine: Machine, pool: int, device: int) -> None:
    put_u64(pool, machine.device(device).pool.handle)


@export("cuDeviceSetMemPool")
def cu_device_set_mem_pool(machine: Machine, device: int, pool: int) -> None:
    if machine.pools.get(pool) is not machine.device(device).pool:
        raise DriverFailure(INVALID_VALUE, "the pool is not the device's")


@export("cuMemPoolGetAttribute")
def cu_mem_pool_get_attribute(machine: Machine, pool: int, attribute: int, value: int) -> None:
    found = machine.pools.get(pool)
    if attribute in (1, 2, 3):
        put_i32(value, int(found.attributes.get(attribute, 1)))
    elif attribute == 4:
        put_u64(value, found.attributes.get(attribute, 0))
    elif attribute in (5, 6, 7, 8):
        put_u64(value, found.device.memory.used_by(MemoryKind.POOL))
    else:
        raise DriverFailure(INVALID_VALUE, f"there is no pool attribute {attribute}")


@export("cuMemPoolSetAttribute")
def cu_mem_pool_set_attribute(machine: Machine, pool: int, attribute: int, value: int) -> None:
    found = machine.pools.get(pool)
    need(value)
    match attribute:
        case 1 | 2 | 3:
            found.attributes[attribute] = get_i32(value)
        case 4:
            found.attributes[attribute] = get_u64(value)
        case 6 | 8:
            pass  # Resetting a high-water mark, which here equals the present use.
        case _:
            raise DriverFailure(INVALID_VALUE, f"pool attribute {attribute} can not be set")


@export("cuMemPoolTrimTo")
def cu_mem_pool_trim_to(machine: Machine, pool: int, _keep: int) -> None:
    machine.pools.get(pool)


@export("cuMemAllocFromPoolAsync")
def cu_mem_alloc_from_pool_async(
    machine: Machine, address: int, size: int, pool: int, stream: int
) -> None:
    machine.pools.get(pool)
    cu_mem_alloc_async(machine, address, size, stream)
