"""Cellar. C structures of calls about memory: locations, access, pools, physical memory."""

from __future__ import annotations

import ctypes

from cudasync.softgpu.abi.marshalling.pointers import get_i32, need
from cudasync.softgpu.core.driver_types.memory_locations import Location


class MemLocation(ctypes.Structure):
    """CUmemLocation."""

    _fields_ = (("kind", ctypes.c_int), ("number", ctypes.c_int))

    @property
    def value(self) -> Location:
        return Location(self.kind, self.number)


class AccessDescription(ctypes.Structure):
    """CUmemAccessDesc."""

    _fields_ = (("location", MemLocation), ("flags", ctypes.c_int))


class PoolProperties(ctypes.Structure):
    """CUmemPoolProps."""

    _fields_ = (
        ("allocation_type", ctypes.c_int),
        ("handle_types", ctypes.c_int),
        ("location", MemLocation),
        ("security", ctypes.c_void_p),
        ("max_bytes", ctypes.c_size_t),
        ("usage", ctypes.c_ushort),
        ("reserved", ctypes.c_ubyte * 54),
    )


class AllocationProperties(ctypes.Structure):
    """CUmemAllocationProp."""

    _fields_ = (
        ("allocation_type", ctypes.c_int),
        ("handle_types", ctypes.c_int),
        ("location", MemLocation),
        ("metadata", ctypes.c_void_p),
        ("compression", ctypes.c_ubyte),
        ("rdma", ctypes.c_ubyte),
        ("usage", ctypes.c_ushort),
        ("reserved", ctypes.c_ubyte * 4),
    )


def location_at(address: int) -> Location:
    """The location that a pointer points to."""
    need(address)
    return Location(get_i32(address), get_i32(address + 4))


def location_of(word: int) -> Location:
    """The location that is passed by value in a 64-bit register."""
    kind, number = word & 0xFFFFFFFF, word >> 32 & 0xFFFFFFFF
    return Location(kind - (kind >> 31 << 32), number - (number >> 31 << 32))


def access_at(address: int, count: int) -> list[tuple[Location, int]]:
    """An array of access descriptions."""
    if not count:
        return []
    size = ctypes.sizeof(AccessDescription)
    need(address, size * count)
    found = [AccessDescription.from_address(address + size * index) for index in range(count)]
    return [(each.location.value, each.flags) for each in found]
