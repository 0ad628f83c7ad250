"""Cellar. Physical memory, which has no address until it is mapped.

It lies in files in memory, so that one piece can be mapped at several addresses, outlive its
mappings, and be exported to another process. Pieces that cannot be exported share one file for
each device, because a process may have few descriptors.

True at every call's end: physical memory exists as long as a handle or a mapping does.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from typing import TYPE_CHECKING, Final

from cudasync.softgpu.core.driver_types.handles import Handles, new_handle
from cudasync.softgpu.core.driver_types.memory_locations import DEVICE, HOST, Location
from cudasync.softgpu.core.driver_types.result_codes import (
    INVALID_VALUE,
    OUT_OF_MEMORY,
    DriverFailure,
)
from cudasync.softgpu.interface.poison import poison

if TYPE_CHECKING:
    from cudasync.locks import Lock
    from cudasync.softgpu.core.context import Device
    from cudasync.softgpu.core.machine import Machine
    from cudasync.softgpu.core.memory.allocation_table import AllocationTable

GRANULARITY: Final = 2 << 20
_POISONED_BYTES: Final = 64 << 20
_NAME: Final = "cudasync-"
# FALLOC_FL_KEEP_SIZE and FALLOC_FL_PUNCH_HOLE: pages go back to the system.
_PUNCH: Final = 3

_fallocate = ctypes.CDLL(None).fallocate
_fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_long, ctypes.c_long]


class Store:
    """A file in memory that is cut into pieces."""

    def __init__(self, name: str, size_bytes: int) -> None:
        self.descriptor = os.memfd_create(_NAME + name, os.MFD_CLOEXEC)
        os.ftruncate(self.descriptor, size_bytes)
        self._size_bytes = size_bytes
        self._taken: dict[int, int] = {}

    def take(self, size_bytes: int) -> int | None:
        """Take a piece and return its offset; None if no gap is large enough."""
        at = 0
        for offset in sorted(self._taken):
            if at + size_bytes <= offset:
                break
            at = offset + self._taken[offset]
        if at + size_bytes > self._size_bytes:
            return None
        self._taken[at] = size_bytes
        return at

    def give_back(self, offset: int) -> bool:
        """End a piece; True if none is left."""
        _fallocate(self.descriptor, _PUNCH, offset, self._taken.pop(offset))
        return not self._taken

    def close(self) -> None:
        os.close(self.descriptor)


class Physical:
    """A piece of physical memory, made by cuMemCreate."""

    def __init__(
        self, store: Store, offset: int, size_bytes: int, location: Location, shared: int
    ) -> None:
        self.store = store
        self.offset = offset
        self.size_bytes = size_bytes
        self.location = location
        # The CUmemAllocationHandleType for exports; if set, the piece has its own store.
        self.shared = shared
        self.handle = new_handle()
        self.handles = 1
        self.mappings = 0

    @property
    def descriptor(self) -> int:
        return self.store.descriptor


class _Foreign(Store):
    """A file from another export."""

    def __init__(self, descriptor: int, size_bytes: int) -> None:
        self.descriptor = os.dup(descriptor)
        self._size_bytes = size_bytes
        self._taken = {0: size_bytes}

    def give_back(self, offset: int) -> bool:
        return True


class PhysicalMemory:
    """All physical memory of a machine."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._handles: Handles[Physical] = Handles("memory handle", code=INVALID_VALUE)
        self._stores: dict[Device | None, Store] = {}
        self._used: dict[Device | None, int] = {}

    @property
    def _lock(self) -> Lock:
        return self._machine.executor.lock

    def get(self, handle: int) -> Physical:
        """The physical memory of a handle."""
        return self._handles.get(handle)

    def used_bytes(self, device: Device) -> int:
        """The bytes of a device's memory in use, allocated and created."""
        return device.memory.arena.used_bytes + self._used.get(device, 0)

    def leave_room(self, table: AllocationTable, size_bytes: int) -> None:
        """DriverFailure OUT_OF_MEMORY if an allocation does not fit beside created memory."""
        for device, used in self._used.items():
            if device is None or device.memory is not table or not used:
                continue
            if size_bytes > device.total_bytes - self.used_bytes(device):
                raise DriverFailure(
                    OUT_OF_MEMORY, f"{size_bytes} bytes requested, {used} in use by cuMemCreate"
                )

    def create(self, size_bytes: int, location: Location, shared: int) -> Physical:
        """cuMemCreate: poisoned memory on a device, or on the host."""
        if not size_bytes or size_bytes % GRANULARITY:
            raise uneven(size_bytes)
        device = location.device(self._machine.devices)
        total = (device or self._machine.devices[0]).total_bytes
        try:
            with self._lock:
                used = self.used_bytes(device) if device is not None else self._used.get(None, 0)
                if size_bytes > total - used:
                    raise DriverFailure(
                        OUT_OF_MEMORY, f"{size_bytes} bytes requested, {used} of {total} in use"
                    )
                made = self._cut(device, size_bytes, total, location, shared)
            _poison(made)
        except OSError as problem:
            raise DriverFailure(OUT_OF_MEMORY, str(problem)) from None
        self._handles.add(made.handle, made)
        return made

    def _cut(
        self, device: Device | None, size_bytes: int, total: int, location: Location, shared: int
    ) -> Physical:
        name = "host" if device is None else str(device.ordinal)
        if shared:
            store = Store(name, size_bytes)
        else:
            found = self._stores.get(device)
            store = found or self._stores.setdefault(device, Store(name, total))
        offset = store.take(size_bytes)
        if offset is None:
            raise DriverFailure(OUT_OF_MEMORY, f"no contiguous {size_bytes} bytes are free")
        self._used[device] = self._used.get(device, 0) + size_bytes
        return Physical(store, offset, size_bytes, location, shared)

    def retain(self, physical: Physical) -> None:
        """Add a handle; the lock is held."""
        physical.handles += 1
        self._handles.add(physical.handle, physical)

    def release(self, handle: int) -> None:
        """cuMemRelease: the memory stays as long as it is mapped."""
        with self._lock:
            physical = self.get(handle)
            physical.handles -= 1
            if not physical.handles:
                self._handles.discard(handle)
            self.drop(physical)

    def drop(self, physical: Physical) -> None:
        """End memory without handles and mappings; the lock is held."""
        if physical.handles or physical.mappings:
            return
        self._used[physical.location.device(self._machine.devices)] -= physical.size_bytes
        if physical.store.give_back(physical.offset) and physical.shared:
            physical.store.close()

    # Exporting and importing

    def export(self, handle: int) -> int:
        """A file descriptor for another process; the caller closes it."""
        physical = self.get(handle)
        if not physical.shared:
            raise DriverFailure(
                INVALID_VALUE,
                "the memory was not created with a handle type, so it cannot be exported",
            )
        try:
            return os.dup(physical.descriptor)
        except OSError as problem:
            raise DriverFailure(OUT_OF_MEMORY, str(problem)) from None

    def take_in(self, descriptor: int) -> Physical:
        """The memory of a file descriptor that another process, or this one, exported."""
        try:
            name = os.readlink(f"/proc/self/fd/{descriptor}")
            size_bytes = os.fstat(descriptor).st_size
        except OSError as problem:
            raise DriverFailure(INVALID_VALUE, str(problem)) from None
        start = f"/memfd:{_NAME}"
        owner = name.removeprefix(start).partition(" ")[0]
        if not name.startswith(start) or not (owner.isdigit() or owner == "host"):
            raise DriverFailure(
                INVALID_VALUE, f"the file descriptor leads to {name}, not to memory of cuMemCreate"
            )
        location = Location(HOST) if owner == "host" else Location(DEVICE, int(owner))
        device = location.device(self._machine.devices)
        physical = Physical(_Foreign(descriptor, size_bytes), 0, size_bytes, location, 1)
        with self._lock:
            self._used[device] = self._used.get(device, 0) + size_bytes
        self._handles.add(physical.handle, physical)
        return physical


def _poison(physical: Physical) -> None:
    size_bytes = min(physical.size_bytes, _POISONED_BYTES)
    with mmap.mmap(physical.descriptor, size_bytes, offset=physical.offset) as pages:
        whole = ctypes.c_char.from_buffer(pages)
        poison(ctypes.addressof(whole), size_bytes)
        del whole  # Without this, the mapping cannot be closed.


def uneven(size_bytes: int) -> DriverFailure:
    """The failure for a size or an address that is no multiple of the granularity."""
    return DriverFailure(
        INVALID_VALUE, f"{size_bytes} bytes: sizes and addresses must be multiples of {GRANULARITY}"
    )
