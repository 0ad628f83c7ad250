"""Cellar. The allocation table: which memory exists, whose it is, who made it and who freed it.

True at every call's end:
- live allocations of a table are disjoint, and kept sorted by start;
- an address is found in at most one allocation of all tables;
- `version` changes whenever the set of live ranges does, so that snapshots can be cached.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import deque
from dataclasses import dataclass, field
from enum import Enum, unique
from typing import TYPE_CHECKING, Final

from cudasync.softgpu.core.results import OUT_OF_MEMORY, DriverFailure
from cudasync.softgpu.core.sites import call_site

if TYPE_CHECKING:
    from cudasync.softgpu.core.arena import Arena
    from cudasync.softgpu.core.context import Context

_REMEMBERED_FREES: Final = 4096


@unique
class MemoryKind(Enum):
    """How memory came to be."""

    DEVICE = "device memory"
    POOL = "stream-ordered device memory"
    VARIABLE = "a module variable"
    PINNED = "pinned host memory"
    REGISTERED = "registered host memory"
    MANAGED = "managed memory"

    @property
    def is_host(self) -> bool:
        return self in (MemoryKind.PINNED, MemoryKind.REGISTERED)


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
    """False before a stream-ordered allocation has been executed, and after the free."""
    is_freeing: bool = False
    """True from the call that frees it, even if the free has yet to be executed."""
    freed_at: str = ""

    @property
    def end(self) -> int:
        return self.start + self.size_bytes

    def describe(self) -> str:
        """What a fault report says about it."""
        what = f"{self.kind.value} {self.name!r}" if self.name else self.kind.value
        text = f"{what} of {self.size_bytes} bytes at {self.start:#x}, allocated at {self.made_at}"
        return f"{text}, freed at {self.freed_at}" if self.freed_at else text


@dataclass(slots=True)
class AllocationTable:
    """The allocations of one arena, and registered memory, which lies outside of it."""

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
                f"{size_bytes} bytes asked for, {self.arena.used_bytes} of "
                f"{self.arena.end - self.arena.base} in use",
            )
        return self._enter(start, size_bytes, kind, context, live=live)

    def register(self, start: int, size_bytes: int, context: Context) -> Allocation:
        """Enter memory that the caller owns."""
        return self._enter(start, size_bytes, MemoryKind.REGISTERED, context, live=True)

    def _enter(
        self, start: int, size_bytes: int, kind: MemoryKind, context: Context, *, live: bool
    ) -> Allocation:
        self._made += 1
        made = Allocation(start, size_bytes, kind, context, call_site(), self._made, is_live=live)
        insort(self._starts, start)
        self._by_start[start] = made
        self.version += 1
        return made

    def make_live(self, allocation: Allocation) -> None:
        """Let kernels see a stream-ordered allocation from now on."""
        allocation.is_live = True
        self.version += 1

    def free(self, allocation: Allocation) -> None:
        """Take it out of the table and remember it for reports; `arena.release` comes after."""
        del self._by_start[allocation.start]
        del self._starts[bisect_right(self._starts, allocation.start) - 1]
        allocation.is_live = False
        allocation.is_freeing = True
        allocation.freed_at = allocation.freed_at or call_site()
        self._freed.append(allocation)
        self.version += 1

    def find(self, address: int) -> Allocation | None:
        """The allocation that holds `address`, live or not yet live."""
        index = bisect_right(self._starts, address) - 1
        if index < 0:
            return None
        found = self._by_start[self._starts[index]]
        return found if address < found.end else None

    def overlaps(self, start: int, end: int) -> bool:
        """True if any allocation has a byte in [start, end)."""
        index = bisect_right(self._starts, end - 1) - 1
        return index >= 0 and self._by_start[self._starts[index]].end > start

    def find_freed(self, address: int) -> Allocation | None:
        """The last allocation that held `address` and was freed."""
        for allocation in reversed(self._freed):
            if allocation.start <= address < allocation.end:
                return allocation
        return None

    def nearest(self, address: int) -> Allocation | None:
        """The allocation whose edge is nearest."""
        index = bisect_right(self._starts, address)
        near = [self._by_start[start] for start in self._starts[max(0, index - 1) : index + 1]]
        return min(near, key=lambda a: distance(a, address), default=None)

    def live_ranges(self) -> list[tuple[int, int]]:
        """What a kernel may touch."""
        return [(a.start, a.end) for a in self._by_start.values() if a.is_live]

    def used_by(self, kind: MemoryKind) -> int:
        """Bytes of all allocations of a kind."""
        return sum(a.size_bytes for a in self._by_start.values() if a.kind is kind)

    def of_context(self, context: Context) -> list[Allocation]:
        """Everything that `context` has allocated here."""
        return [a for a in self._by_start.values() if a.context is context]


def distance(allocation: Allocation, address: int) -> int:
    """Bytes between an address and the nearest byte of an allocation; 0 inside."""
    if address < allocation.start:
        return allocation.start - address
    return max(0, address - allocation.end + 1)
