"""Cellar. Driver calls about managed memory: advice, prefetching, and queries of both."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Final

from cudasync.softgpu.abi.marshalling.memory_structures import location_at, location_of
from cudasync.softgpu.abi.marshalling.pointers import (
    get_i32,
    get_u64,
    need,
    need_no_flags,
    put_i32,
    put_u64,
)
from cudasync.softgpu.abi.stub.registry import export
from cudasync.softgpu.core.driver_types.memory_locations import NO_DEVICE, Location, of_ordinal
from cudasync.softgpu.core.driver_types.result_codes import INVALID_VALUE, DriverFailure
from cudasync.softgpu.core.memory.allocation_table import MemoryKind
from cudasync.softgpu.core.memory.managed_memory import ACCESSED_BY
from cudasync.softgpu.core.streams.streams import PER_THREAD_HANDLE

if TYPE_CHECKING:
    from cudasync.softgpu.core.machine import Machine

_GLOBAL, _HOST, _SINGLE = 1, 2, 4
_LOCATION_BYTES: Final = 8
_MOST_RANGES: Final = 1 << 20


@export("cuMemAllocManaged")
def cu_mem_alloc_managed(machine: Machine, address: int, size: int, flags: int) -> None:
    need(address)
    if flags not in (_GLOBAL, _HOST):
        raise DriverFailure(
            INVALID_VALUE, "the flags must be CU_MEM_ATTACH_GLOBAL or CU_MEM_ATTACH_HOST"
        )
    machine.captures.refuse_unsafe("an allocation")
    put_u64(address, machine.memory.allocate_host(size, MemoryKind.MANAGED, flags).start)


@export("cuMemAdvise", 8000, "CUdeviceptr, size_t, CUmem_advise, CUdevice")
def cu_mem_advise(machine: Machine, address: int, size: int, advice: int, device: int) -> None:
    machine.managed.advise(address, size, advice, of_ordinal(device))


@export("cuMemAdvise", 12020, "CUdeviceptr, size_t, CUmem_advise, CUmemLocation")
def cu_mem_advise_v2(machine: Machine, address: int, size: int, advice: int, location: int) -> None:
    machine.managed.advise(address, size, advice, location_of(location))


@export("cuMemPrefetchAsync", 8000, "CUdeviceptr, size_t, CUdevice, CUstream")
def cu_mem_prefetch_async(
    machine: Machine, address: int, size: int, device: int, stream: int
) -> None:
    machine.streams.get(stream)
    machine.managed.prefetch(address, size, of_ordinal(device))


@export("cuMemPrefetchAsync", 12020, "CUdeviceptr, size_t, CUmemLocation, unsigned int, CUstream")
def cu_mem_prefetch_async_v2(
    machine: Machine, address: int, size: int, location: int, flags: int, stream: int
) -> None:
    need_no_flags(flags)
    machine.streams.get(stream)
    machine.managed.prefetch(address, size, location_of(location))


def _ranges(addresses: int, sizes: int, count: int) -> list[tuple[int, int]]:
    if not 0 < count <= _MOST_RANGES:
        raise DriverFailure(INVALID_VALUE, f"a batch has 1 to {_MOST_RANGES} ranges, not {count}")
    need(addresses, 8 * count)
    need(sizes, 8 * count)
    return [(get_u64(addresses + 8 * n), get_u64(sizes + 8 * n)) for n in range(count)]


def _locations(locations: int, starts: int, location_count: int, count: int) -> list[Location]:
    """The location of each range of a batch."""
    if not 0 < location_count <= min(count, _MOST_RANGES):
        raise DriverFailure(
            INVALID_VALUE, f"a batch of {count} ranges cannot have {location_count} locations"
        )
    need(locations, _LOCATION_BYTES * location_count)
    need(starts, 8 * location_count)
    begins = [get_u64(starts + 8 * index) for index in range(location_count)]
    if begins[0] or begins != sorted(set(begins)) or begins[-1] >= count:
        raise DriverFailure(
            INVALID_VALUE, "the indices of the locations must start at 0 and increase"
        )
    each = [location_at(locations + _LOCATION_BYTES * index) for index in range(location_count)]
    return [each[sum(begin <= index for begin in begins) - 1] for index in range(count)]


@export("cuMemPrefetchBatchAsync")
def cu_mem_prefetch_batch_async(
    machine: Machine,
    addresses: int,
    sizes: int,
    count: int,
    locations: int,
    starts: int,
    location_count: int,
    flags: int,
    stream: int,
) -> None:
    machine.streams.get(stream)
    need_no_flags(flags)
    ranges = _ranges(addresses, sizes, count)
    places = _locations(locations, starts, location_count, count)
    for address, size in ranges:
        machine.managed.check(address, size)
    for (address, size), place in zip(ranges, places, strict=True):
        machine.managed.prefetch(address, size, place)


@export("cuMemDiscardBatchAsync")
def cu_mem_discard_batch_async(
    machine: Machine, addresses: int, sizes: int, count: int, flags: int, stream: int
) -> None:
    found = machine.streams.get(stream)
    need_no_flags(flags)
    ranges = _ranges(addresses, sizes, count)
    for address, size in ranges:
        machine.managed.check(address, size)
    for address, size in ranges:
        machine.transfers.discard(found, address, size)


@export("cuMemDiscardAndPrefetchBatchAsync")
def cu_mem_discard_and_prefetch_batch_async(
    machine: Machine,
    addresses: int,
    sizes: int,
    count: int,
    locations: int,
    starts: int,
    location_count: int,
    flags: int,
    stream: int,
) -> None:
    _locations(locations, starts, location_count, count)
    cu_mem_discard_batch_async(machine, addresses, sizes, count, flags, stream)
    cu_mem_prefetch_batch_async(
        machine, addresses, sizes, count, locations, starts, location_count, flags, stream
    )


@export("cuStreamAttachMemAsync")
def cu_stream_attach_mem_async(
    machine: Machine, stream: int, address: int, size: int, flags: int
) -> None:
    found = machine.memory.find(address)
    if found is None or found.is_freeing or not found.kind.is_managed:
        raise DriverFailure(INVALID_VALUE, f"{address:#x} is not managed memory")
    if size not in (0, found.size_bytes) or address != found.start:
        raise DriverFailure(INVALID_VALUE, "only a whole allocation can be attached to a stream")
    if flags not in (_GLOBAL, _HOST, _SINGLE):
        raise DriverFailure(INVALID_VALUE, f"unknown flags {flags:#x}")
    machine.streams.get(stream)
    if flags == _SINGLE and stream <= PER_THREAD_HANDLE:
        raise DriverFailure(
            INVALID_VALUE, "CU_MEM_ATTACH_SINGLE needs a stream that is not a default stream"
        )


# Queries


def _answer(machine: Machine, data: int, size: int, attribute: int, span: tuple[int, int]) -> None:
    need(data)
    if not size or size % 4:
        raise DriverFailure(
            INVALID_VALUE, f"the size of an attribute must be a multiple of 4, not {size}"
        )
    if attribute != ACCESSED_BY:
        if size != 4:
            raise DriverFailure(INVALID_VALUE, f"the attribute has 4 bytes, not {size}")
        put_i32(data, machine.managed.attribute(*span, attribute))
        return
    found = machine.managed.accessed_by(*span)
    need(data, size)
    count = size // 4
    padded = (found + [NO_DEVICE] * count)[:count]
    ctypes.memmove(data, (ctypes.c_int * count)(*padded), size)


@export("cuMemRangeGetAttribute")
def cu_mem_range_get_attribute(
    machine: Machine, data: int, data_size: int, attribute: int, address: int, size: int
) -> None:
    _answer(machine, data, data_size, attribute, (address, size))


@export("cuMemRangeGetAttributes")
def cu_mem_range_get_attributes(
    machine: Machine,
    data: int,
    data_sizes: int,
    attributes: int,
    count: int,
    address: int,
    size: int,
) -> None:
    if not 0 < count <= _MOST_RANGES:
        raise DriverFailure(
            INVALID_VALUE, f"a query is for 1 to {_MOST_RANGES} attributes, not {count}"
        )
    need(data, 8 * count)
    need(data_sizes, 8 * count)
    need(attributes, 4 * count)
    for index in range(count):
        where, room = get_u64(data + 8 * index), get_u64(data_sizes + 8 * index)
        _answer(machine, where, room, get_i32(attributes + 4 * index), (address, size))


@export("cuMemGetLocationInfo")
def cu_mem_get_location_info(
    machine: Machine, address: int, size: int, region: int, sample: int, locations: int
) -> None:
    if not 0 < region <= size or sample > region:
        raise DriverFailure(
            INVALID_VALUE, f"{size} bytes cannot have regions of {region} and samples of {sample}"
        )
    machine.managed.check(address, size)
    count = -(-size // region)
    if count > _MOST_RANGES:
        raise DriverFailure(
            INVALID_VALUE, f"a query is for at most {_MOST_RANGES} regions, not {count}"
        )
    need(locations, _LOCATION_BYTES * count)
    for index in range(count):
        start = address + region * index
        where = machine.managed.whereabouts(start, min(region, address + size - start))
        put_i32(locations + _LOCATION_BYTES * index, where.kind)
        put_i32(locations + _LOCATION_BYTES * index + 4, where.number)
