"""Cellar. Driver calls about virtual memory: reserving, creating, mapping, giving access."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Final

from cudasync.softgpu.abi.marshalling.memory_structures import (
    AllocationProperties,
    access_at,
    location_at,
)
from cudasync.softgpu.abi.marshalling.pointers import (
    need,
    need_no_flags,
    put_i32,
    put_u64,
    structure_at,
)
from cudasync.softgpu.abi.stub.registry import export
from cudasync.softgpu.core.driver_types.result_codes import (
    INVALID_VALUE,
    NOT_SUPPORTED,
    DriverFailure,
)
from cudasync.softgpu.core.memory.physical_memory import GRANULARITY

if TYPE_CHECKING:
    from cudasync.softgpu.core.driver_types.memory_locations import Location
    from cudasync.softgpu.core.machine import Machine

_PINNED: Final = 1
_NO_HANDLE, _FILE_DESCRIPTOR = 0, 1


def _location(machine: Machine, properties: int) -> tuple[Location, int]:
    """The location of memory with these properties, and the handle types that it may have."""
    p = structure_at(AllocationProperties, properties)
    if p.allocation_type != _PINNED:
        raise DriverFailure(
            INVALID_VALUE, f"the allocation type must be pinned, not {p.allocation_type}"
        )
    if p.handle_types not in (_NO_HANDLE, _FILE_DESCRIPTOR):
        raise DriverFailure(NOT_SUPPORTED, "memory can only be exported as a file descriptor")
    if p.compression:
        raise DriverFailure(NOT_SUPPORTED, "compressed memory is not supported")
    if p.rdma:
        raise DriverFailure(NOT_SUPPORTED, "GPUDirect RDMA is not modelled")
    location = p.location.value
    location.device(machine.devices)
    return location, p.handle_types


def _no_flags(flags: int) -> None:
    need_no_flags(flags)


@export("cuMemGetAllocationGranularity")
def cu_mem_get_allocation_granularity(
    machine: Machine, granularity: int, properties: int, option: int
) -> None:
    if option not in (0, 1):
        raise DriverFailure(INVALID_VALUE, f"there is no granularity {option}")
    _location(machine, properties)
    put_u64(granularity, GRANULARITY)


@export("cuMemAddressReserve")
def cu_mem_address_reserve(
    machine: Machine, address: int, size: int, alignment: int, wish: int, flags: int
) -> None:
    need(address)
    _no_flags(flags)
    put_u64(address, machine.virtual.reserve(size, alignment, wish))


@export("cuMemAddressFree")
def cu_mem_address_free(machine: Machine, address: int, size: int) -> None:
    if not machine.executor.deferred.put_off(lambda: machine.virtual.free(address, size)):
        machine.virtual.free(address, size)


@export("cuMemCreate")
def cu_mem_create(machine: Machine, handle: int, size: int, properties: int, flags: int) -> None:
    need(handle)
    _no_flags(flags)
    location, shared = _location(machine, properties)
    put_u64(handle, machine.virtual.physical.create(size, location, shared).handle)


@export("cuMemRelease")
def cu_mem_release(machine: Machine, handle: int) -> None:
    release = machine.virtual.physical.release
    if not machine.executor.deferred.put_off(lambda: release(handle)):
        release(handle)


@export("cuMemRetainAllocationHandle")
def cu_mem_retain_allocation_handle(machine: Machine, handle: int, address: int) -> None:
    need(handle)
    put_u64(handle, machine.virtual.retain(address).handle)


@export("cuMemGetAllocationPropertiesFromHandle")
def cu_mem_get_allocation_properties_from_handle(
    machine: Machine, properties: int, handle: int
) -> None:
    physical = machine.virtual.physical.get(handle)
    need(properties, ctypes.sizeof(AllocationProperties))
    ctypes.memset(properties, 0, ctypes.sizeof(AllocationProperties))
    p = AllocationProperties.from_address(properties)
    p.allocation_type = _PINNED
    p.handle_types = physical.shared
    p.location.kind, p.location.number = physical.location


@export("cuMemMap")
def cu_mem_map(
    machine: Machine, address: int, size: int, offset: int, handle: int, flags: int
) -> None:
    _no_flags(flags)
    machine.virtual.map(address, size, offset, handle)


@export("cuMemUnmap")
def cu_mem_unmap(machine: Machine, address: int, size: int) -> None:
    if not machine.executor.deferred.put_off(lambda: machine.virtual.unmap(address, size)):
        machine.virtual.unmap(address, size)


@export("cuMemSetAccess")
def cu_mem_set_access(
    machine: Machine, address: int, size: int, descriptions: int, count: int
) -> None:
    machine.virtual.set_access(address, size, access_at(descriptions, count))


@export("cuMemGetAccess")
def cu_mem_get_access(machine: Machine, flags: int, location: int, address: int) -> None:
    need(flags)
    put_u64(flags, machine.virtual.access(address, location_at(location)))


@export("cuMemExportToShareableHandle")
def cu_mem_export_to_shareable_handle(
    machine: Machine, shareable: int, handle: int, kind: int, flags: int
) -> None:
    need(shareable)
    _no_flags(flags)
    if kind != _FILE_DESCRIPTOR:
        raise DriverFailure(NOT_SUPPORTED, "memory can only be exported as a file descriptor")
    put_i32(shareable, machine.virtual.physical.export(handle))


@export("cuMemImportFromShareableHandle")
def cu_mem_import_from_shareable_handle(
    machine: Machine, handle: int, shareable: int, kind: int
) -> None:
    need(handle)
    if kind != _FILE_DESCRIPTOR:
        raise DriverFailure(NOT_SUPPORTED, "memory can only be imported from a file descriptor")
    # The descriptor itself, in place of a pointer.
    put_u64(handle, machine.virtual.physical.take_in(shareable & 0xFFFFFFFF).handle)
