"""Cellar. Driver calls that allocate, free and describe memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.softgpu.abi.marshalling.pointers import need, offer_u64, put_u32, put_u64
from cudasync.softgpu.abi.stub.registry import export
from cudasync.softgpu.core.driver_types.result_codes import INVALID_VALUE, DriverFailure
from cudasync.softgpu.core.memory.allocation_table import MemoryKind

if TYPE_CHECKING:
    from cudasync.softgpu.core.machine import Machine

_PITCH_BYTES = 512


@export("cuMemAlloc")
def cu_mem_alloc(machine: Machine, address: int, size: int) -> None:
    need(address)
    machine.captures.refuse_unsafe("an allocation")
    put_u64(address, machine.memory.allocate_device(size).start)


@export("cuMemAllocPitch")
def cu_mem_alloc_pitch(
    machine: Machine, address: int, pitch: int, width: int, height: int, _element: int
) -> None:
    need(address)
    machine.captures.refuse_unsafe("an allocation")
    row = -(-width // _PITCH_BYTES) * _PITCH_BYTES
    put_u64(pitch, row)
    put_u64(address, machine.memory.allocate_device(row * height).start)


@export("cuMemFree")
def cu_mem_free(machine: Machine, address: int) -> None:
    machine.captures.refuse_unsafe("a free")
    machine.memory.free(address)


@export("cuMemHostAlloc")
def cu_mem_host_alloc(machine: Machine, address: int, size: int, flags: int) -> None:
    need(address)
    machine.captures.refuse_unsafe("an allocation")
    put_u64(address, machine.memory.allocate_host(size, MemoryKind.PINNED, flags).start)


@export("cuMemAllocHost")
def cu_mem_alloc_host(machine: Machine, address: int, size: int) -> None:
    cu_mem_host_alloc(machine, address, size, 0)


@export("cuMemFreeHost")
def cu_mem_free_host(machine: Machine, address: int) -> None:
    machine.captures.refuse_unsafe("a free")
    machine.memory.free_host(address)


@export("cuMemHostRegister")
def cu_mem_host_register(machine: Machine, address: int, size: int, flags: int) -> None:
    machine.captures.refuse_unsafe("a registration")
    machine.memory.register(address, size, flags)


@export("cuMemHostUnregister")
def cu_mem_host_unregister(machine: Machine, address: int) -> None:
    machine.memory.unregister(address)


@export("cuMemHostGetDevicePointer")
def cu_mem_host_get_device_pointer(machine: Machine, device: int, host: int, _flags: int) -> None:
    # Unified addressing: the same number, if devices can see the memory.
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
    offer_u64(free, max(0, device.total_bytes - machine.virtual.physical.used_bytes(device)))
    offer_u64(total, device.total_bytes)


@export("cuMemGetAddressRange")
def cu_mem_get_address_range(machine: Machine, base: int, size: int, address: int) -> None:
    place = machine.memory.place(address, 1)
    if place.allocation is not None:
        offer_u64(base, place.allocation.start)
        offer_u64(size, place.allocation.size_bytes)
