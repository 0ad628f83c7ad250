"""Cellar. Driver calls about memory pools and stream-ordered memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.softgpu.abi.marshalling.memory_structures import (
    PoolProperties,
    access_at,
    location_at,
)
from cudasync.softgpu.abi.marshalling.pointers import (
    get_i32,
    get_u64,
    need,
    put_i32,
    put_u64,
    structure_at,
)
from cudasync.softgpu.abi.stub.registry import export
from cudasync.softgpu.core.memory.memory_pools import PINNED

if TYPE_CHECKING:
    from cudasync.softgpu.core.machine import Machine
    from cudasync.softgpu.core.streams.streams import Stream


@export("cuMemAllocAsync")
def cu_mem_alloc_async(machine: Machine, address: int, size: int, stream: int) -> None:
    need(address)
    on = machine.streams.get(stream)
    _refuse(machine, on, "an allocation")
    put_u64(address, machine.memory.allocate_async(size, on).start)


@export("cuMemAllocFromPoolAsync")
def cu_mem_alloc_from_pool_async(
    machine: Machine, address: int, size: int, pool: int, stream: int
) -> None:
    need(address)
    found = machine.pools.get(pool)
    on = machine.streams.get(stream)
    _refuse(machine, on, "an allocation")
    put_u64(address, machine.memory.allocate_async(size, on, found).start)


@export("cuMemFreeAsync")
def cu_mem_free_async(machine: Machine, address: int, stream: int) -> None:
    on = machine.streams.get(stream)
    _refuse(machine, on, "a free")
    machine.memory.free_async(address, on)


def _refuse(machine: Machine, stream: Stream, what: str) -> None:
    """In a captured stream the call makes a node; elsewhere it disturbs captures."""
    if stream.capture is None and machine.captures.active:
        machine.captures.refuse_unsafe(what)


@export("cuMemPoolCreate")
def cu_mem_pool_create(machine: Machine, pool: int, properties: int) -> None:
    need(pool)
    p = structure_at(PoolProperties, properties)
    made = machine.pools.create(p.allocation_type, p.location.value, p.max_bytes, p.handle_types)
    put_u64(pool, made.handle)


@export("cuMemPoolDestroy")
def cu_mem_pool_destroy(machine: Machine, pool: int) -> None:
    machine.pools.destroy(pool)


@export("cuMemPoolGetAttribute")
def cu_mem_pool_get_attribute(machine: Machine, pool: int, attribute: int, value: int) -> None:
    found = machine.pools.get(pool)
    machine.captures.refuse_unsafe("a question about a pool")
    answer = machine.pools.attribute(found, attribute)
    if found.is_wide(attribute):
        put_u64(value, answer)
    else:
        put_i32(value, answer)


@export("cuMemPoolSetAttribute")
def cu_mem_pool_set_attribute(machine: Machine, pool: int, attribute: int, value: int) -> None:
    found = machine.pools.get(pool)
    need(value)
    wanted = get_u64(value) if found.is_wide(attribute) else get_i32(value)
    machine.pools.set_attribute(found, attribute, wanted)


@export("cuMemPoolTrimTo")
def cu_mem_pool_trim_to(machine: Machine, pool: int, keep: int) -> None:
    found = machine.pools.get(pool)
    machine.captures.refuse_unsafe("a trim of a pool")
    machine.pools.trim(found, keep)


@export("cuMemPoolSetAccess")
def cu_mem_pool_set_access(machine: Machine, pool: int, descriptions: int, count: int) -> None:
    machine.pools.set_access(machine.pools.get(pool), access_at(descriptions, count))


@export("cuMemPoolGetAccess")
def cu_mem_pool_get_access(machine: Machine, flags: int, pool: int, location: int) -> None:
    found = machine.pools.get(pool)
    device = location_at(location).device(machine.devices)
    put_i32(flags, found.access(device))


# The pool in use: by device, and since CUDA 13 by type and location


@export("cuDeviceGetDefaultMemPool")
def cu_device_get_default_mem_pool(machine: Machine, pool: int, device: int) -> None:
    put_u64(pool, machine.device(device).pool.handle)


@export("cuDeviceGetMemPool")
def cu_device_get_mem_pool(machine: Machine, pool: int, device: int) -> None:
    location = machine.device(device).pool.location
    put_u64(pool, machine.pools.current(PINNED, location).handle)


@export("cuDeviceSetMemPool")
def cu_device_set_mem_pool(machine: Machine, device: int, pool: int) -> None:
    location = machine.device(device).pool.location
    machine.pools.set_current(PINNED, location, machine.pools.get(pool))


@export("cuMemGetDefaultMemPool")
def cu_mem_get_default_mem_pool(machine: Machine, pool: int, location: int, kind: int) -> None:
    need(pool)
    put_u64(pool, machine.pools.default(kind, location_at(location)).handle)


@export("cuMemGetMemPool")
def cu_mem_get_mem_pool(machine: Machine, pool: int, location: int, kind: int) -> None:
    need(pool)
    put_u64(pool, machine.pools.current(kind, location_at(location)).handle)


@export("cuMemSetMemPool")
def cu_mem_set_mem_pool(machine: Machine, location: int, kind: int, pool: int) -> None:
    machine.pools.set_current(kind, location_at(location), machine.pools.get(pool))
