"""Cellar. One reserved range of addresses, cut into allocations.

The range is reserved once and its pages come into being when touched, so that gigabytes cost
nothing until used, and an address of this arena can be told by comparing.

True at every call's end:
- allocations start at multiples of 256 and never touch: at least 256 free bytes lie between
  two, so that an access one past the end hits nobody;
- what is released waits in quarantine and is reused last, so that a use after free finds
  poison, not somebody else's data;
- fresh and released memory holds the byte 0xA5 (of large blocks: their edges). Whoever
  reserves or releases calls `poison` for it, outside of any lock.
"""

from __future__ import annotations

import ctypes
import mmap
from bisect import bisect_left
from collections import deque
from typing import Final

ALIGNMENT: Final = 256
POISON: Final = 0xA5
GUARD_BYTES: Final = 256
_QUARANTINE_BYTES: Final = 256 << 20
# Poisoning touches pages. Above this size only the edges are poisoned, and released pages
# go back to the system.
_POISON_WHOLE_BYTES: Final = 64 << 20
_POISON_EDGE_BYTES: Final = 4 << 20
_MAP_NORESERVE: Final = 0x4000
_PAGE_BYTES: Final = mmap.PAGESIZE


class Arena:
    """Addresses [base, end), handed out by first fit."""

    def __init__(self, size_bytes: int) -> None:
        self._map = mmap.mmap(
            -1, size_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE
        )
        self.base = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        self.end = self.base + size_bytes
        self.used_bytes = 0
        # Free ranges by address: starts and ends, sorted, coalesced. The last one is the tail
        # that was never used, so fresh programs always take from there.
        self._starts = [self.base]
        self._ends = [self.end]
        self._quarantine: deque[tuple[int, int]] = deque()
        self._quarantined_bytes = 0

    def reserve(self, size_bytes: int) -> int | None:
        """The start of a block of `size_bytes`, to be poisoned; None if there is no room."""
        need = _footprint(size_bytes)
        while True:
            start = self._take(need)
            if start is not None:
                self.used_bytes += need
                return start
            if not self._quarantine:
                return None
            self._evict()

    def release(self, start: int, size_bytes: int) -> None:
        """Put a block, poisoned, into quarantine."""
        need = _footprint(size_bytes)
        self.used_bytes -= need
        self._quarantine.append((start, need))
        self._quarantined_bytes += need
        while self._quarantined_bytes > _QUARANTINE_BYTES:
            self._evict()

    def _take(self, need: int) -> int | None:
        for index, start in enumerate(self._starts):
            end = self._ends[index]
            if end - start >= need:
                if end - start == need:
                    del self._starts[index], self._ends[index]
                else:
                    self._starts[index] = start + need
                return start
        return None

    def _evict(self) -> None:
        """Make the block that waited longest in quarantine free again."""
        start, need = self._quarantine.popleft()
        self._quarantined_bytes -= need
        end = start + need
        index = bisect_left(self._starts, start)
        joins_next = index < len(self._starts) and self._starts[index] == end
        joins_previous = index > 0 and self._ends[index - 1] == start
        if joins_next and joins_previous:
            self._ends[index - 1] = self._ends[index]
            del self._starts[index], self._ends[index]
        elif joins_next:
            self._starts[index] = start
        elif joins_previous:
            self._ends[index - 1] = end
        else:
            self._starts.insert(index, start)
            self._ends.insert(index, end)

    def poison(self, start: int, size_bytes: int, *, is_released: bool = False) -> None:
        """Fill a block that is nobody's with 0xA5; needs no lock and may take long."""
        if size_bytes <= _POISON_WHOLE_BYTES:
            ctypes.memset(start, POISON, size_bytes)
            return
        if is_released:
            self._drop_pages(start, size_bytes)
        ctypes.memset(start, POISON, _POISON_EDGE_BYTES)
        ctypes.memset(start + size_bytes - _POISON_EDGE_BYTES, POISON, _POISON_EDGE_BYTES)

    def _drop_pages(self, start: int, size_bytes: int) -> None:
        first = -(-(start - self.base) // _PAGE_BYTES) * _PAGE_BYTES
        last = (start - self.base + size_bytes) // _PAGE_BYTES * _PAGE_BYTES
        self._map.madvise(mmap.MADV_DONTNEED, first, last - first)


def _footprint(size_bytes: int) -> int:
    """What an allocation takes from the arena: its size rounded up, and the gap behind it."""
    return -(-size_bytes // ALIGNMENT) * ALIGNMENT + GUARD_BYTES
