"""Cellar, core. Pages of an arena that other processes can map.

An arena's pages are private to this process. The pages of exported memory are moved to a file in
memory, each at its offset in the arena. So allocations on one page also share it in the file. The
file has no name: it ends with the last process that has it open, however that process ends.

True at every call's end: a page is in the file exactly if its number is in `_shared`. A slot
behind the pages holds the number of the exported memory, and 0 once the memory is freed.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from typing import TYPE_CHECKING, Final

from cudasync.softgpu.core.driver_types.result_codes import (
    INVALID_HANDLE,
    OUT_OF_MEMORY,
    DriverFailure,
)

if TYPE_CHECKING:
    from cudasync.softgpu.core.memory.arena import Arena

PAGE: Final = mmap.PAGESIZE
NONCE_BYTES: Final = 16
_SLOTS: Final = 1 << 16
_SLOT_BYTES: Final = 8
_MAP_FIXED: Final = 0x10
_MAP_NORESERVE: Final = 0x4000
_CHUNK_BYTES: Final = 4 << 20
# FALLOC_FL_KEEP_SIZE and FALLOC_FL_PUNCH_HOLE.
_PUNCH: Final = 3

_c = ctypes.CDLL(None, use_errno=True)
_mmap = _c.mmap
_mmap.restype = ctypes.c_void_p
_mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long)
_fallocate = _c.fallocate
_fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_long, ctypes.c_long]


def pages_of(start: int, size_bytes: int) -> tuple[int, int]:
    """The whole pages that contain a byte of a range, as (first, end)."""
    return start // PAGE * PAGE, -(-(start + max(1, size_bytes)) // PAGE) * PAGE


def map_shared(address: int, size_bytes: int, descriptor: int, offset: int) -> None:
    """Map pages to a file; DriverFailure OUT_OF_MEMORY if the system refuses."""
    flags = mmap.MAP_SHARED | _MAP_FIXED | _MAP_NORESERVE
    rights = mmap.PROT_READ | mmap.PROT_WRITE
    if _mmap(address, size_bytes, rights, flags, descriptor, offset) != address:
        raise DriverFailure(OUT_OF_MEMORY, os.strerror(ctypes.get_errno()))


def map_private(address: int, size_bytes: int) -> None:
    """Make pages private to this process again; their contents are lost."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_FIXED | _MAP_NORESERVE
    rights = mmap.PROT_READ | mmap.PROT_WRITE
    if _mmap(address, size_bytes, rights, flags, -1, 0) != address:
        raise DriverFailure(OUT_OF_MEMORY, os.strerror(ctypes.get_errno()))


class SharedPages:
    """The file of one arena. Used under the executor's lock, while nothing executes."""

    def __init__(self, arena: Arena, name: str) -> None:
        self._arena = arena
        self.nonce = os.urandom(NONCE_BYTES)
        self.descriptor = os.memfd_create(f"cudasync-ipc-{name}-{self.nonce.hex()}", os.MFD_CLOEXEC)
        self._slots_at = arena.end - arena.base
        os.ftruncate(self.descriptor, self._slots_at + _SLOTS * _SLOT_BYTES)
        self._shared: set[int] = set()
        self._free_slots = list(range(_SLOTS - 1, -1, -1))

    def share(self, start: int, size_bytes: int) -> None:
        """Move the contents of these pages to the file, except pages already there."""
        first, end = pages_of(start, size_bytes)
        page = first
        while page < end:
            if page in self._shared:
                page += PAGE
                continue
            behind = page + PAGE
            while behind < end and behind not in self._shared and behind - page < _CHUNK_BYTES:
                behind += PAGE
            offset = page - self._arena.base
            os.pwrite(self.descriptor, ctypes.string_at(page, behind - page), offset)
            map_shared(page, behind - page, self.descriptor, offset)
            self._shared.update(range(page, behind, PAGE))
            page = behind

    def unshare(self, start: int, size_bytes: int) -> None:
        """Take back the pages that lie wholly in this range; their contents are lost."""
        first, end = -(-start // PAGE) * PAGE, (start + size_bytes) // PAGE * PAGE
        if first >= end:
            return
        map_private(first, end - first)
        _fallocate(self.descriptor, _PUNCH, first - self._arena.base, end - first)
        self._shared.difference_update(range(first, end, PAGE))

    # Which exported memory still exists

    def enter(self, number: int) -> int:
        """Take a slot and mark the memory with this number as existing."""
        if not self._free_slots:
            raise DriverFailure(OUT_OF_MEMORY, f"a process shares at most {_SLOTS} allocations")
        slot = self._free_slots.pop()
        self._write(slot, number)
        return slot

    def leave(self, slot: int) -> None:
        """Mark the slot's memory as gone, and free the slot."""
        self._write(slot, 0)
        self._free_slots.append(slot)

    def _write(self, slot: int, number: int) -> None:
        at = self._slots_at + _SLOT_BYTES * slot
        os.pwrite(self.descriptor, number.to_bytes(_SLOT_BYTES, "little"), at)


def is_there(descriptor: int, slot: int, number: int) -> bool:
    """Whether a file that another process made still has memory of this number."""
    at = os.fstat(descriptor).st_size - _SLOTS * _SLOT_BYTES + _SLOT_BYTES * slot
    return os.pread(descriptor, _SLOT_BYTES, at) == number.to_bytes(_SLOT_BYTES, "little")


def open_foreign(process: int, descriptor: int, kind: str, nonce: bytes) -> int:
    """Open another process's file in memory; DriverFailure INVALID_HANDLE if it is closed."""
    path = f"/proc/{process}/fd/{descriptor}"
    try:
        name = os.readlink(path)
        if not name.startswith(f"/memfd:cudasync-{kind}-") or nonce.hex() not in name:
            raise DriverFailure(INVALID_HANDLE, f"process {process} has closed this handle")
        opened = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError as problem:
        raise DriverFailure(
            INVALID_HANDLE,
            f"memory that process {process} shared cannot be opened: {problem.strerror}",
        ) from None
    # Between `readlink` and `open`, the descriptor may have become another file's.
    if os.readlink(f"/proc/self/fd/{opened}") != name:
        os.close(opened)
        raise DriverFailure(INVALID_HANDLE, f"process {process} has closed this handle")
    return opened
