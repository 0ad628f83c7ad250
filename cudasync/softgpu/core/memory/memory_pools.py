"""Cellar. Memory pools: the source of stream-ordered memory, and its access rights.

Memory of a pool is taken from its device's arena, or the host's, on request, and goes back when it
is freed. Memory that a pool *holds* beyond its use is only a count, up to the release threshold,
as a program that watches the attributes expects. Kernels of the pool's own device alone may use its
memory until access is given: peer access to a context does not cover pools. A pool of the host has
no device of its own, so no kernel may, as on an H200; copies go there without access.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from cudasync.softgpu.core.driver_types.handles import Handles, new_handle
from cudasync.softgpu.core.driver_types.memory_locations import (
    ACCESS_BOTH,
    ACCESS_NONE,
    ACCESS_READ,
    Location,
)
from cudasync.softgpu.core.driver_types.result_codes import (
    INVALID_DEVICE,
    INVALID_VALUE,
    NOT_SUPPORTED,
    OUT_OF_MEMORY,
    DriverFailure,
)
from cudasync.softgpu.core.memory.allocation_table import MemoryKind
from cudasync.softgpu.core.memory.pool_files import check_handle_types, pool_file, read_pool

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cudasync.softgpu.core.context import Device
    from cudasync.softgpu.core.memory.peer_access import Peers
    from cudasync.softgpu.core.scheduling.executor import Executor

# CUmemAllocationType.
PINNED: Final = 1
MANAGED: Final = 2

# CUmemPool_attribute.
_REUSE: Final = (1, 2, 3)
_THRESHOLD: Final = 4
_RESERVED, _RESERVED_HIGH, _USED, _USED_HIGH = 5, 6, 7, 8
_TYPE, _HANDLES, _LOCATION_NUMBER, _LOCATION_KIND, _MAX, _DECOMPRESS = 9, 10, 11, 12, 13, 14
_WIDE: Final = frozenset({_THRESHOLD, _RESERVED, _RESERVED_HIGH, _USED, _USED_HIGH, _MAX})


class Pool:
    """One pool with its settings and counts. Used under the executor's lock."""

    def __init__(
        self,
        device: Device | None,
        location: Location,
        *,
        allocation_type: int = PINNED,
        max_bytes: int = 0,
        is_default: bool = False,
        is_shareable: bool = False,
        is_imported: bool = False,
    ) -> None:
        self.device = device
        self.location = location
        self.allocation_type = allocation_type
        self.max_bytes = max_bytes
        self.is_default = is_default
        # True if the pool can be exported, or is imported from another process.
        self.is_shareable = is_shareable
        self.is_imported = is_imported
        # The file that represents the pool in other processes, once it is exported.
        self.files: list[int] = []
        # Distinguishes its memory from other pools' memory in other processes.
        self.mark = 1 + int.from_bytes(os.urandom(8), "little") % (2**32 - 1)
        self.handle = new_handle()
        # Devices that were given access to its memory.
        self.guests: set[Device] = set()
        self._settings = dict.fromkeys(_REUSE, 1)
        self._threshold = 0
        self._used = self._used_high = 0
        self._held = self._held_high = 0

    @property
    def kind(self) -> MemoryKind:
        """The kind of memory from this pool."""
        if self.allocation_type == MANAGED:
            return MemoryKind.MANAGED_POOL
        return MemoryKind.POOL if self.device is not None else MemoryKind.HOST_POOL

    # Counting

    def take(self, size_bytes: int) -> None:
        """Count more memory in use; DriverFailure OUT_OF_MEMORY above the pool's own limit."""
        if self.max_bytes and self._used + size_bytes > self.max_bytes:
            raise DriverFailure(
                OUT_OF_MEMORY,
                f"{size_bytes} bytes requested, {self._used} of the pool's {self.max_bytes} in use",
            )
        self._used += size_bytes
        self._used_high = max(self._used_high, self._used)
        self._held = max(self._held, self._used)
        self._held_high = max(self._held_high, self._held)

    def give_back(self, size_bytes: int) -> None:
        """Count less memory in use; memory held above the threshold is released."""
        self._used -= size_bytes
        self.trim(self._threshold)

    def trim(self, keep_bytes: int) -> None:
        """Hold no more than `keep_bytes`, or than the memory in use if that is more."""
        self._held = min(self._held, max(self._used, keep_bytes))

    # Attributes

    @staticmethod
    def is_wide(attribute: int) -> bool:
        """True for 64-bit attributes; the others have 32 bits."""
        return attribute in _WIDE

    def attribute(self, number: int) -> int:
        """cuMemPoolGetAttribute."""
        values = {
            **self._settings,
            _THRESHOLD: self._threshold,
            _RESERVED: self._held,
            _RESERVED_HIGH: self._held_high,
            _USED: self._used,
            _USED_HIGH: self._used_high,
            _TYPE: self.allocation_type,
            _HANDLES: int(self.is_shareable),
            _LOCATION_NUMBER: self.location.number,
            _LOCATION_KIND: self.location.kind,
            _MAX: self.max_bytes,
            _DECOMPRESS: 0,
        }
        if number not in values:
            raise DriverFailure(INVALID_VALUE, f"there is no pool attribute {number}")
        return values[number]

    def set_attribute(self, number: int, value: int) -> None:
        """cuMemPoolSetAttribute."""
        if number in _REUSE:
            self._settings[number] = int(value != 0)
        elif number == _THRESHOLD:
            self._threshold = value
        elif number in (_RESERVED_HIGH, _USED_HIGH):
            if value:
                raise DriverFailure(INVALID_VALUE, "a high-water mark can be set only to 0")
            if number == _USED_HIGH:
                self._used_high = self._used
            else:
                self._held_high = self._held
        else:
            raise DriverFailure(INVALID_VALUE, f"pool attribute {number} cannot be set")

    # Access

    def access(self, device: Device | None) -> int:
        """The CUmemAccess_flags of a device, or of the host."""
        if self.allocation_type == MANAGED or device is self.device or device in self.guests:
            return ACCESS_BOTH
        return ACCESS_NONE

    def set_access(self, device: Device | None, flags: int) -> None:
        """Give a device access to the pool's memory, or revoke it."""
        check_access(flags)
        if device is None or self.allocation_type == MANAGED:
            if flags != self.access(device):
                raise DriverFailure(INVALID_VALUE, "this access to a pool cannot be changed")
        elif device is self.device:
            if flags != ACCESS_BOTH:
                raise DriverFailure(INVALID_VALUE, "a device cannot lose its own pool")
        elif flags == ACCESS_BOTH:
            self.guests.add(device)
        else:
            self.guests.discard(device)


def check_access(flags: int) -> None:
    """DriverFailure for access flags that are invalid, or cannot be enforced."""
    if flags == ACCESS_READ:
        raise DriverFailure(NOT_SUPPORTED, "read-only access is not modelled")
    if flags not in (ACCESS_NONE, ACCESS_BOTH):
        raise DriverFailure(INVALID_VALUE, f"there is no access mode {flags}")


class PoolManager:
    """All pools of a machine: default pools, created pools, and the current pool of each place."""

    def __init__(self, devices: Sequence[Device], executor: Executor, peers: Peers) -> None:
        self._devices = devices
        self._peers = peers
        self._executor = executor
        self._pools: Handles[Pool] = Handles("memory pool", code=INVALID_VALUE)
        # By type and location: the current pool, if one was set.
        self._current: dict[tuple[int, Location], Pool] = {}
        self._defaults: dict[tuple[int, Location], Pool] = {}
        self.access_version = 0
        for device in devices:
            self._pools.add(device.pool.handle, device.pool)
            self._defaults[PINNED, device.pool.location] = device.pool

    def get(self, handle: int) -> Pool:
        """The pool of a handle."""
        return self._pools.get(handle)

    def create(
        self, allocation_type: int, location: Location, max_bytes: int, handle_types: int
    ) -> Pool:
        """cuMemPoolCreate."""
        check_handle_types(handle_types)
        if allocation_type == MANAGED and max_bytes:
            raise DriverFailure(INVALID_VALUE, "a pool of managed memory has no limit of its own")
        if allocation_type == MANAGED and handle_types:
            raise DriverFailure(NOT_SUPPORTED, "managed memory cannot be shared between processes")
        made = self.like(allocation_type, location, max_bytes)
        made.is_shareable = bool(handle_types)
        return self._add(made)

    def hand_out(self, pool: Pool) -> int:
        """A file descriptor that represents a pool in another process; the caller owns it."""
        if not pool.is_shareable:
            raise DriverFailure(
                INVALID_VALUE,
                "the pool was not created with a handle type, so it cannot be exported",
            )
        try:
            if not pool.files:
                pool.files.append(pool_file(pool.location, pool.mark))
            return os.dup(pool.files[0])
        except OSError as problem:
            raise DriverFailure(OUT_OF_MEMORY, str(problem)) from None

    def take_in(self, descriptor: int) -> Pool:
        """Import the pool of a descriptor; only pointers can be imported from it."""
        location, mark = read_pool(descriptor)
        made = Pool(location.device(self._devices), location, is_imported=True)
        made.mark = mark
        return self._add(made)

    def like(self, allocation_type: int, location: Location, max_bytes: int = 0) -> Pool:
        """A pool without a handle: a description of memory of this type and place."""
        if allocation_type not in (PINNED, MANAGED):
            raise DriverFailure(INVALID_VALUE, f"there is no allocation type {allocation_type}")
        device = self._device_of(allocation_type, location)
        return Pool(device, location, allocation_type=allocation_type, max_bytes=max_bytes)

    def _add(self, pool: Pool) -> Pool:
        self._pools.add(pool.handle, pool)
        return pool

    def _device_of(self, allocation_type: int, location: Location) -> Device | None:
        if allocation_type == MANAGED and location.kind == 0:
            return None
        return location.device(self._devices)

    def destroy(self, handle: int) -> None:
        """cuMemPoolDestroy: allocations from the pool stay until they are freed."""
        pool = self.get(handle)
        if pool.is_default:
            raise DriverFailure(INVALID_VALUE, "a default pool cannot be destroyed")
        self._pools.remove(handle)
        while pool.files:
            os.close(pool.files.pop())
        with self._executor.lock:
            for place in [at for at, current in self._current.items() if current is pool]:
                del self._current[place]

    def default(self, allocation_type: int, location: Location) -> Pool:
        """The default pool of a place, made at first use."""
        if allocation_type not in (PINNED, MANAGED):
            raise DriverFailure(INVALID_VALUE, f"there is no allocation type {allocation_type}")
        device = self._device_of(allocation_type, location)
        found = self._defaults.get((allocation_type, location))
        if found is None:
            made = Pool(device, location, allocation_type=allocation_type, is_default=True)
            found = self._defaults.setdefault((allocation_type, location), made)
            self._pools.add(found.handle, found)
        return found

    def current(self, allocation_type: int, location: Location) -> Pool:
        """The pool that allocations of a place come from."""
        found = self._current.get((allocation_type, location))
        return found or self.default(allocation_type, location)

    def set_current(self, allocation_type: int, location: Location, pool: Pool) -> None:
        """Let allocations of a place come from `pool`, which must lie there."""
        device = self._device_of(allocation_type, location)
        if pool.allocation_type != allocation_type or pool.device is not device:
            raise DriverFailure(INVALID_VALUE, "the pool is at another location")
        with self._executor.lock:
            self._current[allocation_type, location] = pool

    # Attributes and access

    def attribute(self, pool: Pool, number: int) -> int:
        """cuMemPoolGetAttribute."""
        with self._executor.lock:
            return pool.attribute(number)

    def set_attribute(self, pool: Pool, number: int, value: int) -> None:
        """cuMemPoolSetAttribute."""
        with self._executor.lock:
            pool.set_attribute(number, value)

    def trim(self, pool: Pool, keep_bytes: int) -> None:
        """cuMemPoolTrimTo."""
        with self._executor.lock:
            pool.trim(keep_bytes)

    def set_access(self, pool: Pool, descriptions: Sequence[tuple[Location, int]]) -> None:
        """cuMemPoolSetAccess."""
        for location, flags in descriptions:
            try:
                device = location.device(self._devices)
            except DriverFailure as failure:
                if failure.code != INVALID_DEVICE:
                    raise
                raise DriverFailure(INVALID_VALUE, failure.detail) from None
            if device is not None and pool.device is not None and flags == ACCESS_BOTH:
                self._peers.check(device, pool.device)
            with self._executor.lock:
                pool.set_access(device, flags)
                self.access_version += 1
