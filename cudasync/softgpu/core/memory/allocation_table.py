"""Cellar. The allocation table: which memory exists, its owner, and the lines that made it.

True at every call's end:
- live allocations of a table are disjoint, and kept sorted by start;
- an address is found in at most one allocation of all tables;
- `version` changes whenever the set of live ranges does, so that snapshots can be cached.

A thread that changes a table holds the executor's lock. A look-up takes no lock: a found
allocation existed at some moment of the call. Look-ups use copies, each made by one C call. Only
the first attempt in `find` reads the changing list, and its answer is checked.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import deque
from dataclasses import dataclass, field
from enum import Enum, unique
from typing import TYPE_CHECKING, Final

from cudasync.softgpu.core.driver_types.call_sites import call_site
from cudasync.softgpu.core.driver_types.result_codes import OUT_OF_MEMORY, DriverFailure

if TYPE_CHECKING:
    from cudasync.softgpu.core.context import Context
    from cudasync.softgpu.core.graphs.memory_nodes import GraphMemory
    from cudasync.softgpu.core.memory.arena import Arena
    from cudasync.softgpu.core.memory.interprocess_handles import Sharing
    from cudasync.softgpu.core.memory.managed_memory import Pages
    from cudasync.softgpu.core.memory.memory_pools import Pool

_REMEMBERED_FREES: Final = 4096


@unique
class MemoryKind(Enum):
    """How memory was made."""

    DEVICE = "device memory"
    POOL = "stream-ordered device memory"
    VARIABLE = "a module variable"
    PINNED = "pinned host memory"
    REGISTERED = "registered host memory"
    MANAGED = "managed memory"
    HOST_POOL = "stream-ordered host memory"
    MANAGED_POOL = "stream-ordered managed memory"
    VIRTUAL = "mapped memory"
    ARRAY = "a CUDA array"
    OBJECT = "a texture or surface object"

    @property
    def is_host(self) -> bool:
        return self in (MemoryKind.PINNED, MemoryKind.REGISTERED, MemoryKind.HOST_POOL)

    @property
    def is_managed(self) -> bool:
        return self in (MemoryKind.MANAGED, MemoryKind.MANAGED_POOL)

    @property
    def is_pooled(self) -> bool:
        return self in (MemoryKind.POOL, MemoryKind.HOST_POOL, MemoryKind.MANAGED_POOL)


@dataclass(slots=True, eq=False)
class Allocation:
    """A range of memory and its history."""

    start: int
    size_bytes: int
    kind: MemoryKind
    context: Context
    made_at: str
    number: int
    name: str = ""
    flags: int = 0
    is_live: bool = False
    """False before a stream-ordered allocation has executed, and after the free."""
    is_freeing: bool = False
    """True from the call that frees it, even before the free executes."""
    freed_at: str = ""
    keeper: GraphMemory | None = None
    """For a graph's memory: keeps the address when the memory is freed."""
    pool: Pool | None = None
    """The pool of stream-ordered memory."""
    is_synchronous: bool = False
    """True if copying and filling calls wait until they are done (SYNC_MEMOPS)."""
    pages: Pages | None = None
    """The advice for managed memory, page by page."""
    shared: Sharing | None = None
    """How the memory is shared with other processes, as owner or importer."""
    is_of_library: bool = False
    """True if an object of cudasync made it and will free it; set only while leaks are checked."""

    @property
    def end(self) -> int:
        return self.start + self.size_bytes

    def describe(self) -> str:
        """The allocation's description in a fault report."""
        what = f"{self.kind.value} {self.name!r}" if self.name else self.kind.value
        text = f"{what} of {self.size_bytes} bytes at {self.start:#x}, allocated at {self.made_at}"
        return f"{text}, freed at {self.freed_at}" if self.freed_at else text


@dataclass(slots=True)
class AllocationTable:
    """The allocations of one arena, and registered memory, which lies outside the arena."""

    arena: Arena
    version: int = 0
    _starts: list[int] = field(default_factory=list)
    _by_start: dict[int, Allocation] = field(default_factory=dict)
    _freed: deque[Allocation] = field(default_factory=lambda: deque(maxlen=_REMEMBERED_FREES))
    _made: int = 0

    def allocate(
        self, size_bytes: int, kind: MemoryKind, context: Context, *, live: bool = True
    ) -> Allocation:
        """Reserve memory; DriverFailure OUT_OF_MEMORY if there is no room."""
        start = self.arena.reserve(size_bytes)
        if start is None:
            raise DriverFailure(
                OUT_OF_MEMORY,
                f"{size_bytes} bytes requested, {self.arena.used_bytes} of "
                f"{self.arena.size_bytes} in use",
            )
        return self._enter(start, size_bytes, kind, context, live=live)

    def register(
        self,
        start: int,
        size_bytes: int,
        context: Context,
        kind: MemoryKind = MemoryKind.REGISTERED,
        *,
        live: bool = True,
    ) -> Allocation:
        """Enter memory that the caller owns."""
        return self._enter(start, size_bytes, kind, context, live=live)

    def _enter(
        self, start: int, size_bytes: int, kind: MemoryKind, context: Context, *, live: bool
    ) -> Allocation:
        self._made += 1
        made = Allocation(start, size_bytes, kind, context, call_site(), self._made, is_live=live)
        insort(self._starts, start)
        self._by_start[start] = made
        self.version += 1
        return made

    @property
    def made(self) -> int:
        """The number of allocations made so far, which is the number of the latest."""
        return self._made

    def make_live(self, allocation: Allocation) -> None:
        """Make a stream-ordered allocation visible to kernels."""
        allocation.is_live = True
        self.version += 1

    def hide(self, allocation: Allocation) -> None:
        """Make an allocation invisible to kernels; its address stays taken."""
        allocation.is_live = False
        self.version += 1

    def free(self, allocation: Allocation) -> None:
        """Remove it from the table, and keep it for reports; `arena.release` comes after."""
        del self._by_start[allocation.start]
        del self._starts[bisect_right(self._starts, allocation.start) - 1]
        allocation.is_live = False
        allocation.is_freeing = True
        allocation.freed_at = allocation.freed_at or call_site()
        self._freed.append(allocation)
        self.version += 1

    def find(self, address: int) -> Allocation | None:
        """The allocation that contains or begins at `address`, live or not yet live."""
        starts = self._starts
        # Another thread may shorten the list; without a GIL, also within `bisect_right`.
        try:
            found = self._by_start[starts[bisect_right(starts, address) - 1]]
            if found.start <= address < found.end or address == found.start:
                return found
        except LookupError:
            pass
        return self._find_again(address)

    def _find_again(self, address: int) -> Allocation | None:
        """Like `find`, also while other threads free and allocate."""
        while True:
            version, starts = self.version, self._starts.copy()
            index = bisect_right(starts, address) - 1
            found = self._by_start.get(starts[index]) if index >= 0 else None
            if found is not None and (found.start <= address < found.end or address == found.start):
                return found
            if version == self.version:
                return None

    def overlaps(self, start: int, end: int) -> bool:
        """True if any allocation has a byte in [start, end); the lock is held."""
        index = bisect_right(self._starts, end - 1) - 1
        return index >= 0 and self._by_start[self._starts[index]].end > start

    def find_freed(self, address: int) -> Allocation | None:
        """The latest freed allocation that contained `address`."""
        # A copy: other threads free meanwhile.
        for allocation in reversed(self._freed.copy()):
            if allocation.start <= address < allocation.end:
                return allocation
        return None

    def nearest(self, address: int) -> Allocation | None:
        """The allocation with the nearest edge."""
        starts = self._starts.copy()
        index = bisect_right(starts, address)
        near = [self._by_start.get(start) for start in starts[max(0, index - 1) : index + 1]]
        # Another thread may just have freed one of them.
        there = [allocation for allocation in near if allocation is not None]
        return min(there, key=lambda a: distance(a, address), default=None)

    def live_ranges(self) -> list[tuple[int, int]]:
        """The ranges that a kernel may touch."""
        return [(a.start, a.end) for a in self._all() if a.is_live]

    def live(self) -> list[Allocation]:
        """The allocations that can be used now."""
        return [a for a in self._all() if a.is_live]

    def used_by(self, kind: MemoryKind) -> int:
        """The bytes of all allocations of a kind."""
        return sum(a.size_bytes for a in self._all() if a.kind is kind)

    def of_context(self, context: Context) -> list[Allocation]:
        """All allocations of `context` in this table."""
        return [a for a in self._all() if a.context is context]

    def _all(self) -> list[Allocation]:
        # One C call, so other threads may allocate and free meanwhile.
        return list(self._by_start.values())


def distance(allocation: Allocation, address: int) -> int:
    """The bytes between an address and the nearest byte of an allocation; 0 inside."""
    if address < allocation.start:
        return allocation.start - address
    return max(0, address - allocation.end + 1)
