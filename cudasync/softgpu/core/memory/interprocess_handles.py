"""Cellar, core. Memory between processes: handles of allocations and of pools.

A handle names the process, the file of its pages, and the place in the file, so that the receiver
maps the same pages. `cuIpcGetMemHandle` moves memory into the file while nothing executes. Memory
of an exportable pool lies there from the beginning, in pages of its own.
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cudasync.softgpu.core.driver_types.result_codes import (
    INVALID_CONTEXT,
    INVALID_HANDLE,
    INVALID_VALUE,
    OUT_OF_MEMORY,
    DriverFailure,
)
from cudasync.softgpu.core.driver_types.shared_pages import (
    NONCE_BYTES,
    PAGE,
    SharedPages,
    is_there,
    map_private,
    map_shared,
    open_foreign,
    pages_of,
)
from cudasync.softgpu.core.memory.allocation_table import MemoryKind
from cudasync.softgpu.interface.poison import poison_pages

if TYPE_CHECKING:
    from cudasync.softgpu.core.context import Context, Device
    from cudasync.softgpu.core.machine import Machine
    from cudasync.softgpu.core.memory.allocation_table import Allocation, AllocationTable
    from cudasync.softgpu.core.memory.memory_pools import Pool

HANDLE_BYTES: Final = 64
_HANDLE: Final = struct.Struct(f"<4sIIiIIQQ{NONCE_BYTES}sQ")
_MAGIC: Final = b"csmh"
_HOST: Final = -1


@dataclass(frozen=True, slots=True)
class Sharing:
    """How an allocation is shared; the value of `Allocation.shared`."""

    slot: int
    """The slot in the file that marks the memory as existing; -1 for another process's memory."""
    block: tuple[int, int] | None
    """Its part of the arena (start, size), if it has whole pages of its own."""
    handle: bytes = b""
    """For another process's memory: the received handle, under which it may be handed on."""


class InterprocessMemory:
    """The memory that this process has exported and imported."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._files: dict[int, SharedPages] = {}
        # By handle: another process's memory that is mapped here, and the number of opens.
        self._opened: dict[bytes, tuple[Allocation, int]] = {}

    # Exporting

    def handle(self, address: int) -> bytes:
        """cuIpcGetMemHandle, for the whole allocation."""
        allocation = self._machine.memory.find(address)
        if allocation is None or allocation.is_freeing or allocation.kind is not MemoryKind.DEVICE:
            what = f"{address:#x} is not" if allocation is None else f"{allocation.describe()}: not"
            raise DriverFailure(
                INVALID_VALUE, f"{what} memory of cuMemAlloc, which alone has IPC handles"
            )
        if allocation.shared is not None and allocation.shared.slot < 0:
            raise DriverFailure(INVALID_VALUE, "memory of another process cannot be exported again")
        if allocation.shared is None:
            self._move(allocation)
        return self._described(allocation)

    def pool_pointer(self, address: int) -> bytes:
        """cuMemPoolExportPointer."""
        allocation = self._machine.memory.find(address)
        if (
            allocation is None
            or allocation.is_freeing
            or allocation.shared is None
            or allocation.pool is None
        ):
            raise DriverFailure(
                INVALID_VALUE, f"{address:#x} is not memory of a pool that can be shared"
            )
        if allocation.shared.handle:
            return allocation.shared.handle
        return self._described(allocation)

    def _described(self, allocation: Allocation) -> bytes:
        self._machine.progress.begin()
        table = self._machine.memory.table_of(allocation.start)
        pages, shared = self._pages(table), allocation.shared
        assert shared is not None
        offset = allocation.start - table.arena.base
        packed = _HANDLE.pack(
            _MAGIC,
            os.getpid(),
            pages.descriptor,
            self._ordinal(table),
            shared.slot,
            0 if allocation.pool is None else allocation.pool.mark,
            offset,
            allocation.size_bytes,
            pages.nonce,
            allocation.number,
        )
        return packed.ljust(HANDLE_BYTES, b"\0")

    def _ordinal(self, table: AllocationTable) -> int:
        devices = (d.ordinal for d in self._machine.devices if d.memory is table)
        return next(devices, _HOST)

    def _pages(self, table: AllocationTable) -> SharedPages:
        """The file of an arena, made at first use; the lock is held, or the file exists."""
        found = self._files.get(table.arena.base)
        if found is None:
            try:
                made = SharedPages(table.arena, str(self._ordinal(table)))
            except OSError as problem:
                raise DriverFailure(OUT_OF_MEMORY, str(problem)) from None
            found = self._files.setdefault(table.arena.base, made)
        return found

    def _move(self, allocation: Allocation) -> None:
        """Move memory to the file while nothing executes, so that no write is lost."""
        machine = self._machine
        for context in machine.contexts:
            if not context.is_destroyed and not context.error:
                machine.streams.synchronize_context(context)
        executor = machine.executor
        table = machine.memory.table_of(allocation.start)
        with executor.lock:
            executor.wait_for_others()
            if allocation.shared is not None:
                return
            pages = self._pages(table)
            pages.share(allocation.start, allocation.size_bytes)
            allocation.shared = Sharing(pages.enter(allocation.number), None)

    def allocate(
        self, table: AllocationTable, size_bytes: int, kind: MemoryKind, context: Context
    ) -> Allocation:
        """Allocate in whole pages that lie in the file from the beginning; the lock is held."""
        start, block = self._whole_pages(table, size_bytes)
        made = table.register(start, size_bytes, context, kind, live=False)
        pages = self._pages(table)
        pages.share(start, size_bytes)
        made.shared = Sharing(pages.enter(made.number), block)
        return made

    def own(self, table: AllocationTable, made: Allocation) -> None:
        """Take back pages that earlier memory left in the file; the lock is held."""
        pages = self._files.get(table.arena.base)
        if pages is not None:
            pages.unshare(made.start, made.size_bytes)

    def _whole_pages(self, table: AllocationTable, size_bytes: int) -> tuple[int, tuple[int, int]]:
        """The start of pages that hold nothing else, and the arena block that contains them."""
        span = -(-max(1, size_bytes) // PAGE) * PAGE + PAGE
        taken = table.arena.reserve(span)
        if taken is None:
            raise DriverFailure(OUT_OF_MEMORY, f"{size_bytes} bytes requested, in whole pages")
        block = taken, span
        pages = self._files.get(table.arena.base)
        if pages is not None:
            pages.unshare(*_inner(block))
        return -(-taken // PAGE) * PAGE, block

    # Importing

    def open(self, handle: bytes) -> Allocation:
        """cuIpcOpenMemHandle: another process's memory, on the same device as there."""
        with self._machine.executor.lock:
            known = self._opened.get(handle)
            if known is not None:
                self._opened[handle] = (known[0], known[1] + 1)
                return known[0]
        context = self._machine.context()
        made = self._map(handle, MemoryKind.DEVICE, context)
        made.name = "of another process"
        with self._machine.executor.lock:
            self._opened[handle] = (made, 1)
        return made

    def close(self, address: int) -> None:
        """cuIpcCloseMemHandle: called once for each open."""
        if self._machine.executor.deferred.put_off(lambda: self.close(address)):
            return
        with self._machine.executor.lock:
            at = [key for key, (each, _) in self._opened.items() if each.start == address]
            if not at:
                raise DriverFailure(INVALID_VALUE, f"{address:#x} was not opened from a handle")
            handle = at[0]
            allocation, uses = self._opened[handle]
            if uses > 1:
                self._opened[handle] = (allocation, uses - 1)
                return
            del self._opened[handle]
            allocation.is_freeing = True
        self._machine.streams.synchronize_context(allocation.context)
        self._machine.memory.end(allocation)

    def is_opened(self, allocation: Allocation) -> bool:
        """Whether memory came from a handle, so that it is closed and not freed."""
        return any(each is allocation for each, _ in list(self._opened.values()))

    def take_pointer(self, pool: Pool, handle: bytes) -> Allocation:
        """cuMemPoolImportPointer: memory of another process's pool."""
        if not pool.is_imported:
            raise DriverFailure(INVALID_VALUE, "the pool was not imported from another process")
        # No context need be current; the memory belongs to the primary context of its device.
        device = pool.device or self._machine.devices[0]
        made = self._map(handle, pool.kind, device.primary, mark=pool.mark)
        made.name = "of another process"
        made.pool = pool
        with self._machine.executor.lock:
            pool.take(made.size_bytes)
        return made

    def _map(self, handle: bytes, kind: MemoryKind, context: Context, mark: int = 0) -> Allocation:
        magic, process, number, ordinal, slot, of_pool, offset, size_bytes, nonce, made_as = (
            _HANDLE.unpack_from(handle)
        )
        self._machine.progress.begin()
        if magic != _MAGIC:
            raise DriverFailure(INVALID_HANDLE, "these bytes are not an IPC memory handle")
        if of_pool != mark:
            raise DriverFailure(INVALID_VALUE, "the memory belongs to another pool")
        if process == os.getpid() and kind is MemoryKind.DEVICE:
            raise DriverFailure(
                INVALID_CONTEXT, "this process exported the memory: use its own pointer"
            )
        device = None if ordinal == _HOST else self._machine.device(ordinal)
        if device is not None:
            self._machine.peers.check(context.device, device)
        table = self._machine.host_memory if device is None else device.memory
        descriptor = open_foreign(process, number, "ipc", nonce)
        try:
            first, end = pages_of(offset, size_bytes)
            if end > os.fstat(descriptor).st_size or not is_there(descriptor, slot, made_as):
                raise DriverFailure(INVALID_HANDLE, f"process {process} has freed the memory")
            with self._machine.executor.lock:
                at, block = self._whole_pages(table, end - first)
                map_shared(at, end - first, descriptor, first)
                owner = self._owner(device, context)
                made = table.register(at + offset - first, size_bytes, owner, kind)
                made.shared = Sharing(-1, block, bytes(handle))
        finally:
            os.close(descriptor)
        return made

    @staticmethod
    def _owner(device: Device | None, context: Context) -> Context:
        return context if device is None or device is context.device else device.primary

    # The end of shared memory

    def end(self, table: AllocationTable, allocation: Allocation) -> None:
        """Give back shared memory's part of the arena, after its removal from the table."""
        shared = allocation.shared
        assert shared is not None
        with self._machine.executor.lock:
            for handle, (opened, _) in list(self._opened.items()):
                if opened is allocation:
                    del self._opened[handle]
            if shared.slot < 0:
                map_private(*_inner(shared.block))
            else:
                pages = self._pages(table)
                pages.leave(shared.slot)
                if shared.block is not None:
                    pages.unshare(*_inner(shared.block))
                else:
                    pages.unshare(allocation.start, allocation.size_bytes)
        block = shared.block or (allocation.start, allocation.size_bytes)
        poison_pages(*block)
        with self._machine.executor.lock:
            table.arena.release(*block)


def _inner(block: tuple[int, int] | None) -> tuple[int, int]:
    """The whole pages within an allocation's block of an arena."""
    assert block is not None
    first = -(-block[0] // PAGE) * PAGE
    return first, (block[0] + block[1]) // PAGE * PAGE - first
