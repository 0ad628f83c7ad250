"""Cellar. One reserved range of addresses, cut into allocations.

The range is reserved once, and its pages come when touched. So gigabytes cost nothing until used,
and a comparison tells whether an address is in this arena.

True at every call's end:
- memory in use is at most the arena's size. There are twice as many addresses, so that holes
  between small blocks refuse no request, just as on a GPU, which maps pages;
- allocations start at multiples of 512. At least 512 free bytes lie between two of them, so that
  an access one past the end hits no allocation;
- released memory waits in quarantine and is reused last, so that a use after free finds poison,
  not other data;
- memory that left quarantine is warm: it keeps its pages for a while and is handed out first,
  because new pages cost more than all the rest. Later it is cold: the system has its pages back;
- fresh and released memory is poison. Callers of `reserve` and `release` fill it,
  outside of any lock, because it may take long.
"""

from __future__ import annotations

import ctypes
import mmap
from contextlib import suppress
from typing import Final

from cudasync.softgpu.core.driver_types.device_limits import TEXTURE_ALIGNMENT
from cudasync.softgpu.core.memory.free_list import FreeRanges
from cudasync.softgpu.core.memory.quarantine import Quarantine

ALIGNMENT: Final = TEXTURE_ALIGNMENT
GUARD_BYTES: Final = ALIGNMENT
_ADDRESSES_PER_BYTE: Final = 2
_MAP_NORESERVE: Final = 0x4000
_PAGE_BYTES: Final = mmap.PAGESIZE


class Arena:
    """Addresses [base, end), handed out by first fit, `size_bytes` of them at most."""

    def __init__(self, size_bytes: int, quarantine: Quarantine | None = None) -> None:
        addresses = _ADDRESSES_PER_BYTE * size_bytes
        self._map = mmap.mmap(
            -1, addresses, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE
        )
        # The first touch of a huge page costs a fifth of that of its small ones. A system without
        # huge pages refuses.
        with suppress(OSError):
            self._map.madvise(mmap.MADV_HUGEPAGE)
        self.base = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        self.end = self.base + addresses
        self.size_bytes = size_bytes
        self.used_bytes = 0
        # Free memory: warm with pages; cold without pages, also all memory that was never used.
        self.warm = FreeRanges()
        self._cold = FreeRanges()
        self._cold.add(self.base, self.end)
        self.quarantine = quarantine or Quarantine()

    def reserve(self, size_bytes: int) -> int | None:
        """The start of a block of `size_bytes`, to be poisoned; None if there is no room."""
        need = _footprint(size_bytes)
        if self.used_bytes + need > self.size_bytes:
            return None
        while True:
            start = self.warm.take(need)
            if start is None:
                start = self._cold.take(need)
            if start is not None:
                self.used_bytes += need
                return start
            if not self.quarantine.evict():
                if not self.warm.size_bytes:
                    return None
                # Perhaps only warm and cold memory together have room.
                self.cool(self.warm.size_bytes)

    def release(self, start: int, size_bytes: int) -> None:
        """Put a poisoned block into quarantine."""
        need = _footprint(size_bytes)
        self.used_bytes -= need
        self.quarantine.put(self, start, need)

    def take_back(self, start: int, need: int) -> None:
        """Free a block that leaves quarantine."""
        self.warm.add(start, start + need)

    def cool(self, size_bytes: int) -> None:
        """Give up to `size_bytes` of warm memory's pages back to the system."""
        # All blocks are multiples of the alignment, so the remainder is, too.
        for start, end in self.warm.take_last(-(-size_bytes // ALIGNMENT) * ALIGNMENT):
            first, last = self._cold.add(start, end)
            # Whole pages only; a page shared with a block goes with the block.
            low = max(first, start - (start - self.base) % _PAGE_BYTES)
            high = min(last, end + (self.base - end) % _PAGE_BYTES)
            self._drop_pages(low, high - low)

    def _drop_pages(self, start: int, size_bytes: int) -> None:
        first = -(-(start - self.base) // _PAGE_BYTES) * _PAGE_BYTES
        last = (start - self.base + size_bytes) // _PAGE_BYTES * _PAGE_BYTES
        if first < last:
            self._map.madvise(mmap.MADV_DONTNEED, first, last - first)


def _footprint(size_bytes: int) -> int:
    """The bytes that an allocation takes: its size rounded up, and the gap behind it."""
    return -(-size_bytes // ALIGNMENT) * ALIGNMENT + GUARD_BYTES
