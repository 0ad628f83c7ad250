"""Cellar. Memory that was freed and is not given back yet: what holds it, and how much of it.

A freed block waits in quarantine, so that who uses it still finds poison and not somebody else's
data. A free in stream order holds its block longer, until something has the stream run so far.
Both count, over all arenas of a machine, against one bound.

What has left quarantine is free, and warm as long as it has its pages.

True at every call's end: what is in quarantine and what awaits its free take at most three quarters
of `most_bytes`, and what is warm a quarter. Only frees that can not run yet, since their stream
waits for something, may take more.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from cudasync.softgpu.core.memory.arena import Arena
    from cudasync.softgpu.core.memory.stream_ordered_allocation import Vanish
    from cudasync.softgpu.core.scheduling.executor import Executor

DEFAULT_HELD_BYTES: Final = 256 << 20
# The part of it that may be warm, and that frees may take which nobody has asked for yet.
_PART: Final = 4


class Quarantine:
    """The blocks that wait, the oldest first, whichever arena they are of.

    Used under the executor's lock, but for what only asks how much is held.
    """

    def __init__(self, most_bytes: int = DEFAULT_HELD_BYTES) -> None:
        self.most_bytes = most_bytes
        self.size_bytes = 0
        # What frees that are enqueued will bring.
        self.awaiting_bytes = 0
        self._most_warm = most_bytes // _PART
        self._most_waiting = most_bytes - self._most_warm
        # Those that have had a block here.
        self._arenas: dict[Arena, None] = {}
        self._blocks: deque[tuple[Arena, int, int]] = deque()

    def put(self, arena: Arena, start: int, size_bytes: int) -> None:
        """Take in a block; what waited longest makes room."""
        self._arenas[arena] = None
        self._blocks.append((arena, start, size_bytes))
        self.size_bytes += size_bytes
        self.settle()

    def settle(self) -> None:
        """Let go of the oldest until the bound is kept."""
        while self.size_bytes + self.awaiting_bytes > self._most_waiting and self.evict():
            excess = self.warm_bytes - self._most_warm
            if excess > 0:
                self._cool(excess)

    def _cool(self, excess: int) -> None:
        # A good deal at once: small blocks leave one by one.
        excess = max(excess, self._most_warm // 16)
        for arena in self._arenas:
            size = min(excess, arena.warm.size_bytes)
            arena.cool(size)
            excess -= size

    def evict(self) -> bool:
        """Give the block that waited longest back to its arena; False if there is none."""
        if not self._blocks:
            return False
        arena, start, size_bytes = self._blocks.popleft()
        self.size_bytes -= size_bytes
        arena.take_back(start, size_bytes)
        return True

    @property
    def warm_bytes(self) -> int:
        """What is free and has pages."""
        return sum(arena.warm.size_bytes for arena in list(self._arenas))

    @property
    def held_bytes(self) -> int:
        """All that was freed and takes memory all the same."""
        return self.size_bytes + self.awaiting_bytes + self.warm_bytes


class AwaitingFrees:
    """Frees that are enqueued and have not run: where they hold much, they are run.

    That is earlier than anybody asked, as any command of a GPU may be. What comes before them in
    their streams is run, too.
    """

    def __init__(self, executor: Executor, quarantine: Quarantine) -> None:
        self._executor = executor
        self._quarantine = quarantine
        # By age.
        self._frees: dict[Vanish, None] = {}
        # With less than this there is nothing to do, or nothing that could be done the last time.
        self._patience = self._most = quarantine.most_bytes // _PART

    def add(self, free: Vanish) -> None:
        """A free is about to be enqueued."""
        with self._executor.lock:
            self._frees[free] = None
            self._quarantine.awaiting_bytes += free.allocation.size_bytes
            self._quarantine.settle()

    def remove(self, free: Vanish) -> None:
        """It runs, or never will."""
        with self._executor.lock:
            if self._frees.pop(free, 0) is None:
                self._quarantine.awaiting_bytes -= free.allocation.size_bytes

    def run(self) -> None:
        """Run the oldest where there are too many. Waits for nobody."""
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
