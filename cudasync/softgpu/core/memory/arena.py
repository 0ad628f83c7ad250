"""Cellar. One reserved range of addresses, cut into allocations.

The range is reserved once and its pages come into being when touched, so that gigabytes cost
nothing until used, and an address of this arena can be told by comparing.

True at every call's end:
- what is in use is at most the arena's size; there are twice as many addresses, so that holes
  between small blocks refuse nobody, as they do not on a GPU, which maps pages;
- allocations start at multiples of 512 and never touch: at least 512 free bytes lie between
  two, so that an access one past the end hits nobody;
- what is released waits in quarantine and is reused last, so that a use after free finds
  poison, not somebody else's data;
- what left quarantine has its pages for a while, and is handed out first, since new pages cost
  more than all the rest; then it is cold, and its pages are the system's again;
- fresh and released memory is poison. Whoever reserves or releases calls `poison_pages` for it,
  outside of any lock, since it may take long.
"""

from __future__ import annotations

import ctypes
import mmap
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
        self.base = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        self.end = self.base + addresses
        self.size_bytes = size_bytes
        self.used_bytes = 0
        # What is free: with pages, and without, which is all that was never used.
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
                # It may be that only the two together have room.
                self.cool(self.warm.size_bytes)

    def release(self, start: int, size_bytes: int) -> None:
        """Put a block, poisoned, into quarantine."""
        need = _footprint(size_bytes)
        self.used_bytes -= need
        self.quarantine.put(self, start, need)

    def take_back(self, start: int, need: int) -> None:
        """Make a block free again that was in quarantine."""
        self.warm.add(start, start + need)

    def cool(self, size_bytes: int) -> None:
        """Give pages of what is free back to the system: so many bytes, if there are as many."""
        # All blocks are multiples of this, so what remains is, too.
        for start, end in self.warm.take_last(-(-size_bytes // ALIGNMENT) * ALIGNMENT):
            first, last = self._cold.add(start, end)
            # Whole pages; one that is shared with a block goes when that does.
            low = max(first, start - (start - self.base) % _PAGE_BYTES)
            high = min(last, end + (self.base - end) % _PAGE_BYTES)
            self._drop_pages(low, high - low)

    def _drop_pages(self, start: int, size_bytes: int) -> None:
        first = -(-(start - self.base) // _PAGE_BYTES) * _PAGE_BYTES
        last = (start - self.base + size_bytes) // _PAGE_BYTES * _PAGE_BYTES
        if first < last:
            self._map.madvise(mmap.MADV_DONTNEED, first, last - first)


def _footprint(size_bytes: int) -> int:
    """What an allocation takes from the arena: its size rounded up, and the gap behind it."""
    return -(-size_bytes // ALIGNMENT) * ALIGNMENT + GUARD_BYTES
