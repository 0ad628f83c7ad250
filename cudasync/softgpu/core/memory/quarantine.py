"""Cellar. Quarantine: freed memory that the system does not have back yet, within a bound.

A freed block waits in quarantine, so that a late use finds poison and not other data. A
stream-ordered free holds its block longer, until the stream runs that far. Both count, over all
arenas of a machine, against one bound.

A block that has left quarantine is free. It is warm as long as it has its pages.

True at every call's end: quarantine and pending frees take at most three quarters of `most_bytes`,
and warm memory a quarter. Only frees that cannot run yet, because their stream waits, may take
more.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from cudasync.softgpu.core.memory.arena import Arena
    from cudasync.softgpu.core.memory.stream_ordered_allocation import Vanish
    from cudasync.softgpu.core.scheduling.executor import Executor

DEFAULT_HELD_BYTES: Final = 256 << 20
# One part in so many of the bound is for warm memory, and as much for pending frees before `run`.
_PART: Final = 4


class Quarantine:
    """The blocks in quarantine, of all arenas, the oldest first.

    Used under the executor's lock, except for reads of the counts.
    """

    def __init__(self, most_bytes: int = DEFAULT_HELD_BYTES) -> None:
        self.most_bytes = most_bytes
        self.size_bytes = 0
        # The bytes of pending frees.
        self.awaiting_bytes = 0
        self._most_warm = most_bytes // _PART
        self._most_waiting = most_bytes - self._most_warm
        # All arenas that have ever had a block here.
        self._arenas: dict[Arena, None] = {}
        self._blocks: deque[tuple[Arena, int, int]] = deque()

    def put(self, arena: Arena, start: int, size_bytes: int) -> None:
        """Add a block; the oldest blocks leave to make room."""
        self._arenas[arena] = None
        self._blocks.append((arena, start, size_bytes))
        self.size_bytes += size_bytes
        self.settle()

    def settle(self) -> None:
        """Evict the oldest blocks until the bound is kept."""
        while self.size_bytes + self.awaiting_bytes > self._most_waiting and self.evict():
            excess = self.warm_bytes - self._most_warm
            if excess > 0:
                self._cool(excess)

    def _cool(self, excess: int) -> None:
        # Cools a larger part at once, because small blocks leave one by one.
        excess = max(excess, self._most_warm // 16)
        for arena in self._arenas:
            size = min(excess, arena.warm.size_bytes)
            arena.cool(size)
            excess -= size

    def evict(self) -> bool:
        """Give the oldest block back to its arena; False if there is none."""
        if not self._blocks:
            return False
        arena, start, size_bytes = self._blocks.popleft()
        self.size_bytes -= size_bytes
        arena.take_back(start, size_bytes)
        return True

    @property
    def warm_bytes(self) -> int:
        """The bytes of free memory with pages."""
        return sum(arena.warm.size_bytes for arena in list(self._arenas))

    @property
    def held_bytes(self) -> int:
        """The bytes of all freed memory that still has pages."""
        return self.size_bytes + self.awaiting_bytes + self.warm_bytes


class AwaitingFrees:
    """Pending stream-ordered frees, which are run early if they hold much memory.

    They then run before anything waits for them, as any command of a GPU may. Earlier commands of
    their streams run, too.
    """

    def __init__(self, executor: Executor, quarantine: Quarantine) -> None:
        self._executor = executor
        self._quarantine = quarantine
        # By age.
        self._frees: dict[Vanish, None] = {}
        # Below this many bytes, `run` does nothing. It grows after a run that freed too little.
        self._patience = self._most = quarantine.most_bytes // _PART

    def add(self, free: Vanish) -> None:
        """Note a free that is about to be enqueued."""
        with self._executor.lock:
            self._frees[free] = None
            self._quarantine.awaiting_bytes += free.allocation.size_bytes
            self._quarantine.settle()

    def remove(self, free: Vanish) -> None:
        """Note that a free runs, or never will."""
        with self._executor.lock:
            if self._frees.pop(free, 0) is None:
                self._quarantine.awaiting_bytes -= free.allocation.size_bytes

    def run(self) -> None:
        """Run the oldest frees if they hold too much. Does not wait."""
        excess = self._quarantine.awaiting_bytes
        if excess <= self._patience or self._executor.is_busy_here():
            return
        with self._executor.lock:
            frees = list(self._frees)
        oldest: list[Vanish] = []
        excess -= self._most // 2
        for free in frees:
            if excess <= 0:
                break
            oldest.append(free)
            excess -= free.allocation.size_bytes
        self._executor.finish_nowait(oldest)
        self._patience = max(self._most, 2 * self._quarantine.awaiting_bytes)
