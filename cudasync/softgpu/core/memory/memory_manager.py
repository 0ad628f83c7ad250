"""Cellar. Operations on memory: the verbs behind the driver's calls.

There is one address space: device memory, pinned memory and the caller's own memory have different
addresses. So an address alone identifies its owner, as with unified addressing on a GPU.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from cudasync import late
from cudasync.softgpu.core.driver_types.call_sites import call_site
from cudasync.softgpu.core.driver_types.result_codes import (
    HOST_MEMORY_ALREADY_REGISTERED,
    HOST_MEMORY_NOT_REGISTERED,
    INVALID_VALUE,
    OUT_OF_MEMORY,
    DriverFailure,
)
from cudasync.softgpu.core.graphs.stream_capture import Capture
from cudasync.softgpu.core.memory.allocation_table import Allocation, AllocationTable, MemoryKind
from cudasync.softgpu.core.memory.copy_commands import Place
from cudasync.softgpu.core.memory.fresh_memory import fill
from cudasync.softgpu.core.memory.host_pages import is_mapped
from cudasync.softgpu.core.memory.memory_pools import PINNED
from cudasync.softgpu.core.memory.stream_ordered_allocation import Appear, Vanish
from cudasync.softgpu.interface.poison import poison_pages

if TYPE_CHECKING:
    from cudasync.softgpu.core.context import Context, Device
    from cudasync.softgpu.core.machine import Machine
    from cudasync.softgpu.core.memory.memory_pools import Pool
    from cudasync.softgpu.core.streams.streams import Stream
    from cudasync.softgpu.interface.launch import AllocationSnapshot

_launch: Any = late.Module("cudasync.softgpu.interface.launch")  # Only launches need it.
_FREED_AS_HOST: Final = frozenset({MemoryKind.PINNED})
_FREED_AS_DEVICE: Final = frozenset(
    {
        MemoryKind.DEVICE,
        MemoryKind.MANAGED,
        MemoryKind.POOL,
        MemoryKind.HOST_POOL,
        MemoryKind.MANAGED_POOL,
    }
)


class MemoryManager:
    """All memory of a machine."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._executor = machine.executor
        self._host = machine.host_memory
        self.virtual = machine.virtual
        # A check of unwritten memory knows by the poison what the host has not written, unseen.
        self.poisons_managed = False

    # Finding

    def table_of(self, address: int) -> AllocationTable:
        """The table of the arena that contains an address; the host's for all other addresses."""
        for device in self._machine.devices:
            if device.memory.arena.base <= address < device.memory.arena.end:
                return device.memory
        virtual = self.virtual.table
        if virtual is not None and virtual.arena.base <= address < virtual.arena.end:
            return virtual
        return self._host

    def find(self, address: int) -> Allocation | None:
        """The allocation that contains an address."""
        return self.table_of(address).find(address)

    def place(self, address: int, size_bytes: int) -> Place:
        """A device-accessible end of a transfer; DriverFailure if the memory is not."""
        found = self.find(address)
        if found is None or found.is_freeing or found.kind is MemoryKind.VIRTUAL:
            if not size_bytes:
                return Place(address, None)
            if self.virtual.holds(address):
                return self.virtual.place(address, size_bytes)
            raise DriverFailure(INVALID_VALUE, self._complaint(address))
        if address + size_bytes > found.end:
            raise DriverFailure(
                INVALID_VALUE,
                f"{size_bytes} bytes at {address:#x} pass the end: {found.describe()}",
            )
        return Place(address, found)

    def any_place(self, address: int, size_bytes: int) -> Place:
        """An end of a transfer, which may also be pageable host memory."""
        table = self.table_of(address)
        if table is self._host and not self._in_host_arena(address):
            found = table.find(address)
            if found is None or address + size_bytes > found.end:
                if size_bytes and not is_mapped(address, size_bytes):
                    raise DriverFailure(
                        INVALID_VALUE,
                        f"{size_bytes} bytes at {address:#x} are not device or host memory",
                    )
                return Place(address, None)
        return self.place(address, size_bytes)

    def _in_host_arena(self, address: int) -> bool:
        return self._host.arena.base <= address < self._host.arena.end

    def _complaint(self, address: int) -> str:
        table = self.table_of(address)
        freed = table.find(address) or table.find_freed(address)
        if freed is not None:
            return f"{address:#x} is not valid any more: {freed.describe()}"
        return f"{address:#x} is not in an allocation"

    # Allocating

    def allocate(
        self,
        table: AllocationTable,
        size_bytes: int,
        kind: MemoryKind,
        *,
        live: bool = True,
        context: Context | None = None,
        may_be_empty: bool = False,
        pool: Pool | None = None,
    ) -> Allocation:
        """Fresh memory, as `fill` leaves it; if memory is short, a second try after all work."""
        context = context or self._machine.context()
        if size_bytes <= 0 and not (may_be_empty and not size_bytes):
            raise DriverFailure(INVALID_VALUE, "an allocation needs at least 1 byte, not 0")
        self._machine.awaiting_frees.run()
        try:
            with self._executor.lock:
                self.virtual.physical.leave_room(table, size_bytes)
                made = self._make(table, size_bytes, kind, context, live=live, pool=pool)
        except DriverFailure as failure:
            if failure.code != OUT_OF_MEMORY:
                raise
            # Pending frees may make room.
            self._machine.streams.synchronize_context(context)
            with self._executor.lock:
                self.virtual.physical.leave_room(table, size_bytes)
                made = self._make(table, size_bytes, kind, context, live=live, pool=pool)
        fill(made, poisons_managed=self.poisons_managed)
        if (expectations := self._machine.made.get("expectations")) is not None:
            expectations.note_allocation(made)
        return made

    def _make(
        self,
        table: AllocationTable,
        size_bytes: int,
        kind: MemoryKind,
        context: Context,
        *,
        live: bool,
        pool: Pool | None,
    ) -> Allocation:
        """Make the allocation in the table; the lock is held."""
        interprocess = self._machine.interprocess
        if pool is not None and pool.is_shareable:
            return interprocess.allocate(table, size_bytes, kind, context)
        made = table.allocate(size_bytes, kind, context, live=live)
        interprocess.own(table, made)
        return made

    def allocate_device(self, size_bytes: int) -> Allocation:
        """cuMemAlloc."""
        return self.allocate(self._machine.context().device.memory, size_bytes, MemoryKind.DEVICE)

    def allocate_host(self, size_bytes: int, kind: MemoryKind, flags: int = 0) -> Allocation:
        """cuMemHostAlloc, cuMemAllocManaged."""
        made = self.allocate(self._host, size_bytes, kind)
        made.flags = flags
        return made

    def allocate_async(
        self, size_bytes: int, stream: Stream, pool: Pool | None = None
    ) -> Allocation:
        """cuMemAllocAsync: the address now, the memory when the stream gets there.

        The memory comes from `pool`, or from the current pool of the stream's device. An
        allocation of 0 bytes also has an address, which is freed like others.
        """
        context = stream.context
        if pool is None:
            pool = self._machine.pools.current(PINNED, context.device.pool.location)
        if isinstance(stream.capture, Capture):
            return self._machine.graphs.resources.capture_allocation(
                stream.capture, stream, size_bytes, pool
            )
        table = self._host
        if pool.kind is MemoryKind.POOL and pool.device is not None:
            table = pool.device.memory
            context = context if pool.device is context.device else pool.device.primary
        if pool.is_imported:
            raise DriverFailure(INVALID_VALUE, "only the process that exported a pool allocates")
        with self._executor.lock:
            pool.take(size_bytes)
        made: Allocation | None = None
        try:
            made = self.allocate(
                table,
                size_bytes,
                pool.kind,
                live=False,
                context=context,
                may_be_empty=True,
                pool=pool,
            )
            made.pool = pool
            self._executor.enqueue(Appear(stream, self, made))
        except DriverFailure:
            if made is None:
                with self._executor.lock:
                    pool.give_back(size_bytes)
            else:
                self.end(made)
            raise
        return made

    # Freeing

    def free(self, address: int) -> None:
        """cuMemFree: waits for all work of the context, then ends the allocation."""
        self._free_start(address, host=False)

    def free_host(self, address: int) -> None:
        """cuMemFreeHost."""
        self._free_start(address, host=True)

    def _free_start(self, address: int, *, host: bool) -> None:
        if not address:
            return
        if self._executor.deferred.put_off(lambda: self._free_start(address, host=host)):
            return
        self._machine.context()
        allocation = self._owned(address)
        if allocation.kind not in (_FREED_AS_HOST if host else _FREED_AS_DEVICE):
            raise DriverFailure(INVALID_VALUE, f"this function cannot free {allocation.describe()}")
        if allocation.shared is not None and self._machine.interprocess.is_opened(allocation):
            raise DriverFailure(
                INVALID_VALUE, f"cuIpcCloseMemHandle, not a free, ends {allocation.describe()}"
            )
        if allocation.keeper is not None:
            allocation.keeper.give_back()
        allocation.is_freeing = True
        self._machine.streams.synchronize_context(allocation.context)
        self.end(allocation)

    def free_async(self, address: int, stream: Stream) -> None:
        """cuMemFreeAsync: the memory is gone when the stream gets there."""
        if not address:
            return
        if self._executor.deferred.put_off(lambda: self.free_async(address, stream)):
            return
        allocation = self._owned(address)
        if allocation.kind is not MemoryKind.DEVICE and not allocation.kind.is_pooled:
            raise DriverFailure(INVALID_VALUE, f"no pool has {allocation.describe()}")
        if isinstance(stream.capture, Capture):
            self._machine.graphs.resources.capture_free(stream.capture, stream, allocation)
            return
        if allocation.keeper is not None:
            allocation.keeper.give_back()
        allocation.is_freeing = True
        allocation.freed_at = call_site()
        free = Vanish(stream, self, allocation)
        awaiting = self._machine.awaiting_frees
        awaiting.add(free)
        try:
            self._executor.enqueue(free)
        except BaseException:
            awaiting.remove(free)
            raise
        awaiting.run()

    def _owned(self, address: int) -> Allocation:
        allocation = self.find(address)
        if allocation is None or allocation.is_freeing or allocation.start != address:
            raise DriverFailure(INVALID_VALUE, self._complaint(address))
        return allocation

    def make_live(self, allocation: Allocation) -> None:
        """Make an allocation live that was only an address. The executor's lock is not held."""
        with self._executor.lock:
            self.table_of(allocation.start).make_live(allocation)

    def hide(self, allocation: Allocation) -> None:
        """Make an allocation only an address again. The executor's lock is not held."""
        with self._executor.lock:
            self.table_of(allocation.start).hide(allocation)

    def vanish(self, free: Vanish) -> None:
        """Called when an enqueued free runs."""
        self._machine.awaiting_frees.remove(free)
        self.end(free.allocation)

    def drop(self, free: Vanish) -> None:
        """Called for a free that never runs: a failed context keeps its memory until its reset."""
        self._machine.awaiting_frees.remove(free)

    def end(self, allocation: Allocation) -> None:
        """End the memory now; a graph's memory keeps its address."""
        if self._machine.under_objects:
            self._machine.objects.memory_ended(allocation)
        if allocation.keeper is not None:
            allocation.keeper.vanish()
            return
        table = self.table_of(allocation.start)
        with self._executor.lock:
            if table.find(allocation.start) is not allocation:
                return
            table.free(allocation)
            if allocation.pool is not None:
                allocation.pool.give_back(allocation.size_bytes)
        if allocation.shared is not None:
            self._machine.interprocess.end(table, allocation)
        elif allocation.kind is not MemoryKind.REGISTERED:
            poison_pages(allocation.start, allocation.size_bytes)
            with self._executor.lock:
                table.arena.release(allocation.start, allocation.size_bytes)

    def free_all(self, context: Context) -> None:
        """End all allocations of a context."""
        for table in (context.device.memory, self._host):
            for allocation in table.of_context(context):
                if allocation.keeper is not None:
                    allocation.keeper.abandon()
                self.end(allocation)

    # Registering

    def register(self, address: int, size_bytes: int, flags: int) -> None:
        """cuMemHostRegister."""
        context = self._machine.context()
        if not size_bytes or not is_mapped(address, size_bytes):
            raise DriverFailure(INVALID_VALUE, "only mapped memory can be registered")
        with self._executor.lock:
            if self._host.overlaps(address, address + size_bytes):
                raise DriverFailure(HOST_MEMORY_ALREADY_REGISTERED)
            self._host.register(address, size_bytes, context).flags = flags

    def unregister(self, address: int) -> None:
        """cuMemHostUnregister."""
        allocation = self._host.find(address)
        if allocation is None or allocation.kind is not MemoryKind.REGISTERED:
            raise DriverFailure(HOST_MEMORY_NOT_REGISTERED)
        if allocation.start != address:
            raise DriverFailure(
                INVALID_VALUE,
                f"{address:#x} is in the middle of {allocation.describe()}",
            )
        self._machine.streams.synchronize_context(allocation.context)
        self.end(allocation)

    # Memory that kernels may touch

    def snapshot(self, context: Context) -> AllocationSnapshot:
        """The memory that kernels of a context may touch now."""
        own, devices = context.device, self._machine.devices
        pools = self._machine.pools
        virtual = self.virtual
        key: tuple[object, ...] = (
            own.memory.version,
            self._host.version,
            virtual.access_version,
            pools.access_version,
        )
        if len(devices) > 1:
            others = tuple(d.memory.version for d in devices)
            key = (*key, *others, *context.peers)
        kept = context.snapshot
        if kept is not None and kept[0] == key:
            return kept[1]
        with self._executor.lock:
            if context.snapshot is None or context.snapshot[0] != key:
                ranges = [*own.memory.live_ranges(), *self._of_the_host(own)]
                ranges += virtual.ranges(own)
                for device in devices:
                    if device is not own:
                        ranges += self._reachable(device, context)
                context.snapshot = (key, _launch.AllocationSnapshot(ranges))
            return context.snapshot[1]

    def _of_the_host(self, own: Device) -> list[tuple[int, int]]:
        """The ranges of host memory that kernels of a device may touch: a pool's need access."""
        live = self._host.live()
        return [(a.start, a.end) for a in live if a.pool is None or a.pool.access(own)]

    @staticmethod
    def _reachable(device: Device, context: Context) -> list[tuple[int, int]]:
        """The ranges of another device's memory that kernels of a context may touch."""
        is_peer = device in context.peers
        return [
            (each.start, each.end)
            for each in device.memory.live()
            if (context.device in each.pool.guests if each.pool is not None else is_peer)
        ]
