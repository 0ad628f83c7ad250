"""Cellar. Virtual memory: reserved addresses, and mappings of physical memory to them.

Addresses come from one large range. The range is reserved at the first request and never given
back to the system. So an unmapped address is a fault that says so, and never a crash.

True at every call's end:
- mappings are disjoint, each lies in one reservation, and all are multiples of `GRANULARITY`;
- a mapping is live, for kernels and copies, exactly while some device has access to it.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from cudasync.softgpu.core.driver_types.memory_locations import ACCESS_BOTH, ACCESS_NONE
from cudasync.softgpu.core.driver_types.result_codes import (
    ILLEGAL_ADDRESS,
    INVALID_VALUE,
    OUT_OF_MEMORY,
    DriverFailure,
)
from cudasync.softgpu.core.memory.allocation_table import Allocation, AllocationTable, MemoryKind
from cudasync.softgpu.core.memory.arena import Arena
from cudasync.softgpu.core.memory.copy_commands import Place
from cudasync.softgpu.core.memory.memory_pools import check_access
from cudasync.softgpu.core.memory.physical_memory import (
    GRANULARITY,
    Physical,
    PhysicalMemory,
    uneven,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cudasync.locks import Lock
    from cudasync.softgpu.core.context import Device
    from cudasync.softgpu.core.driver_types.memory_locations import Location
    from cudasync.softgpu.core.machine import Machine

_ADDRESS_BYTES: Final = 1 << 40
_FAILED: Final = ctypes.c_void_p(-1).value
_READ_WRITE: Final = mmap.PROT_READ | mmap.PROT_WRITE
_FIXED: Final = 0x10
_NORESERVE: Final = 0x4000

_mmap = ctypes.CDLL(None, use_errno=True).mmap
_mmap.restype = ctypes.c_void_p
_mmap.argtypes = [
    ctypes.c_size_t,
    ctypes.c_size_t,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_long,
]


@dataclass(slots=True, eq=False)
class Mapping:
    """Physical memory at an address."""

    allocation: Allocation
    physical: Physical
    users: set[Device] = field(default_factory=set)
    host: bool = False


@dataclass(frozen=True, slots=True)
class VirtualPlace(Place):
    """An end of a transfer in mapped memory, which may lie in several mappings."""

    space: VirtualMemory | None = None
    span: int = 0

    def check(self, size_bytes: int, what: str) -> None:
        if self.space is None or not size_bytes:
            return
        complaint = self.space.complaint(self.address, self.span)
        if complaint:
            raise DriverFailure(
                ILLEGAL_ADDRESS,
                f"an illegal memory access was encountered: {what} of {size_bytes} bytes at "
                f"{self.address:#x}: {complaint}",
            )


class VirtualMemory:
    """All reservations, physical memory and mappings of a machine."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self.physical = PhysicalMemory(machine)
        self._reservations: dict[int, int] = {}
        self._mappings: dict[int, Mapping] = {}
        self.table: AllocationTable | None = None
        """The table of mappings by address; None before the first reservation."""
        self.access_version = 0

    @property
    def _lock(self) -> Lock:
        return self._machine.executor.lock

    # Addresses

    def reserve(self, size_bytes: int, alignment: int, wish: int) -> int:
        """cuMemAddressReserve: at the address `wish`, if it is free."""
        if not size_bytes or size_bytes % GRANULARITY:
            raise uneven(size_bytes)
        if alignment & (alignment - 1):
            raise DriverFailure(
                INVALID_VALUE, f"the alignment must be a power of two, not {alignment}"
            )
        alignment = max(alignment, GRANULARITY)
        with self._lock:
            arena = self._table().arena
            start = self._free_start(arena, size_bytes, alignment, wish)
            if start is None:
                raise DriverFailure(
                    OUT_OF_MEMORY, f"no contiguous {size_bytes} bytes of addresses are free"
                )
            self._reservations[start] = size_bytes
            return start

    def _table(self) -> AllocationTable:
        if self.table is None:
            try:
                self.table = AllocationTable(Arena(_ADDRESS_BYTES))
            except OSError as problem:
                raise DriverFailure(OUT_OF_MEMORY, f"no addresses: {problem}") from None
        return self.table

    def _free_start(self, arena: Arena, size: int, alignment: int, wish: int) -> int | None:
        taken = sorted((begin, begin + size) for begin, size in self._reservations.items())
        taken.append((arena.end, arena.end))
        if (
            wish
            and wish % alignment == 0
            and arena.base <= wish <= arena.end - size
            and all(end <= wish or wish + size <= start for start, end in taken)
        ):
            return wish
        at = -(-arena.base // alignment) * alignment
        for start, end in taken:
            if at + size <= start:
                return at
            at = max(at, -(-end // alignment) * alignment)
        return None

    def free(self, address: int, size_bytes: int) -> None:
        """cuMemAddressFree: frees a whole reservation without mappings."""
        with self._lock:
            if self._reservations.get(address) != size_bytes:
                raise DriverFailure(
                    INVALID_VALUE, f"{size_bytes} bytes at {address:#x} are not a whole reservation"
                )
            if self._table().overlaps(address, address + size_bytes):
                raise DriverFailure(
                    INVALID_VALUE, "memory is mapped in the reservation: unmap it first"
                )
            del self._reservations[address]

    def holds(self, address: int) -> bool:
        """True for addresses in the range of reservations."""
        table = self.table
        return table is not None and table.arena.base <= address < table.arena.end

    # Handles

    def retain(self, address: int) -> Physical:
        """cuMemRetainAllocationHandle: one more handle to the memory mapped at an address."""
        with self._lock:
            physical = self._mapping_at(address).physical
            self.physical.retain(physical)
            return physical

    # Mapping

    def map(self, address: int, size_bytes: int, offset: int, handle: int) -> None:
        """cuMemMap: maps memory, without access for any device."""
        with self._lock:
            physical = self.physical.get(handle)
            if not size_bytes or (address | size_bytes) % GRANULARITY:
                raise uneven(size_bytes)
            if offset or size_bytes > physical.size_bytes:
                raise DriverFailure(
                    INVALID_VALUE,
                    f"map at most {physical.size_bytes} bytes from offset 0, "
                    f"not {size_bytes} bytes from offset {offset}",
                )
            table = self._table()
            if not self._is_reserved(address, size_bytes):
                raise DriverFailure(
                    INVALID_VALUE, f"{address:#x} is not reserved: call cuMemAddressReserve first"
                )
            if table.overlaps(address, address + size_bytes):
                raise DriverFailure(INVALID_VALUE, f"memory is mapped at {address:#x} already")
            self._put(address, size_bytes, mmap.MAP_SHARED, physical.descriptor, physical.offset)
            device = physical.location.device(self._machine.devices) or self._machine.devices[0]
            allocation = table.register(
                address, size_bytes, device.primary, MemoryKind.VIRTUAL, live=False
            )
            physical.mappings += 1
            self._mappings[address] = Mapping(allocation, physical)

    def _is_reserved(self, address: int, size_bytes: int) -> bool:
        return any(
            start <= address and address + size_bytes <= start + length
            for start, length in list(self._reservations.items())
        )

    @staticmethod
    def _put(address: int, size_bytes: int, flags: int, descriptor: int, offset: int) -> None:
        found = _mmap(address, size_bytes, _READ_WRITE, flags | _FIXED, descriptor, offset)
        if found == _FAILED:
            raise DriverFailure(OUT_OF_MEMORY, os.strerror(ctypes.get_errno()))

    def unmap(self, address: int, size_bytes: int) -> None:
        """cuMemUnmap: unmaps whole mappings, once all work of devices with access is done."""
        for mapping in self._whole(address, size_bytes):
            for device in list(mapping.users):
                self._machine.streams.settle(device)
        with self._lock:
            for mapping in self._whole(address, size_bytes):
                allocation, physical = mapping.allocation, mapping.physical
                self._table().free(allocation)
                del self._mappings[allocation.start]
                anonymous = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NORESERVE
                self._put(allocation.start, allocation.size_bytes, anonymous, -1, 0)
                physical.mappings -= 1
                self.physical.drop(physical)
            self.access_version += 1

    def _whole(self, address: int, size_bytes: int) -> list[Mapping]:
        """The mappings that fill a range exactly; DriverFailure if they do not."""
        found, at = [], address
        while at < address + size_bytes:
            mapping = self._mappings.get(at)
            if mapping is None:
                break
            found.append(mapping)
            at = mapping.allocation.end
        if not found or at != address + size_bytes:
            raise DriverFailure(
                INVALID_VALUE, f"{size_bytes} bytes at {address:#x} are not whole mappings"
            )
        return found

    # Access

    def set_access(
        self, address: int, size_bytes: int, descriptions: Sequence[tuple[Location, int]]
    ) -> None:
        """cuMemSetAccess, for whole mappings."""
        with self._lock:
            mappings = self._whole(address, size_bytes)
            grants = []
            for location, flags in descriptions:
                check_access(flags)
                device = location.device(self._machine.devices)
                if device is None and any(not m.physical.location.is_host for m in mappings):
                    raise DriverFailure(INVALID_VALUE, "the host has no access to a device")
                if device is not None and flags == ACCESS_BOTH:
                    for mapping in mappings:
                        owner = mapping.physical.location.device(self._machine.devices)
                        if owner is not None:
                            self._machine.peers.check(device, owner)
                grants.append((device, flags == ACCESS_BOTH))
            for mapping in mappings:
                for device, is_granted in grants:
                    if device is None:
                        mapping.host = is_granted
                    elif is_granted:
                        mapping.users.add(device)
                    else:
                        mapping.users.discard(device)
                mapping.allocation.is_live = bool(mapping.users) or mapping.host
            self.access_version += 1

    def access(self, address: int, location: Location) -> int:
        """cuMemGetAccess."""
        device = location.device(self._machine.devices)
        mapping = self._mapping_at(address)
        is_granted = mapping.host if device is None else device in mapping.users
        return ACCESS_BOTH if is_granted else ACCESS_NONE

    def _mapping_at(self, address: int) -> Mapping:
        found = self.table.find(address) if self.table is not None else None
        if found is None:
            raise DriverFailure(INVALID_VALUE, f"nothing is mapped at {address:#x}")
        return self._mappings[found.start]

    def location(self, allocation: Allocation) -> Location:
        """The location of a mapping's physical memory."""
        return self._mappings[allocation.start].physical.location

    # Views for transfers and kernels

    def place(self, address: int, size_bytes: int) -> Place:
        """An end of a transfer; DriverFailure INVALID_VALUE if it is unmapped or not allowed."""
        complaint = self.complaint(address, size_bytes)
        if complaint:
            raise DriverFailure(INVALID_VALUE, f"{size_bytes} bytes at {address:#x}: {complaint}")
        return VirtualPlace(address, self._mapping_at(address).allocation, None, self, size_bytes)

    def complaint(self, address: int, size_bytes: int) -> str:
        """The reason why this memory cannot be used; "" if it can."""
        at = address
        while at < address + max(size_bytes, 1):
            found = self.table.find(at) if self.table is not None else None
            if found is None:
                is_reserved = self._is_reserved(at, 1)
                what = (
                    "is reserved, but nothing is mapped there" if is_reserved else "is not reserved"
                )
                return f"{at:#x} {what}"
            if not found.is_live:
                return f"no device has access to {at:#x}, {found.describe()}"
            at = found.end
        return ""

    def describe(self, address: int) -> str:
        """The description of an address for the report of a kernel's illegal access."""
        complaint = self.complaint(address, 1)
        table = self.table
        if table is None:
            return complaint
        if not complaint:
            mapping = self._mapping_at(address)
            return f"the device has no access to {mapping.allocation.describe()}"
        freed = table.find_freed(address) if table.find(address) is None else None
        return f"{complaint} any more: {freed.describe()}" if freed is not None else complaint

    def ranges(self, device: Device) -> list[tuple[int, int]]:
        """The ranges that kernels of a device may touch; adjacent ranges are joined."""
        found: list[tuple[int, int]] = []
        for start in sorted(self._mappings):
            mapping = self._mappings[start]
            if device not in mapping.users:
                continue
            if found and found[-1][1] == start:
                found[-1] = (found[-1][0], mapping.allocation.end)
            else:
                found.append((start, mapping.allocation.end))
        return found
