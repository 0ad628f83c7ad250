"""Floor 4, memory. The lists of the pools: idle blocks, blocks in use, and freeing idle blocks.

A pool has a budget for blocks that are made although others are idle, because those are still in
use by ops in flight: see `reuse`. It follows what the program needs at most, and shrinks whenever
memory is short.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from cudasync.array.memory.holdings import holdings_of
from cudasync.atomic import Tickets

if TYPE_CHECKING:
    from collections.abc import Callable

    from cudasync.array.allocation import Allocation
    from cudasync.driver import Device
    from cudasync.engine.hazards.interval_map import Region

# Idle blocks may have as many bytes as the program has needed at most, but always this share of the
# device, and never more than that one.
_LEAST_SHARE = 1 / 64
_MOST_SHARE = 1 / 4
# So many blocks of a size there may be before an op waits for one, or twice as many as were in use
# at once: some for each stream. Of large blocks there are fewer, since the caches of a device hold
# no more.
_BLOCKS, _LEAST_BLOCKS, _CACHED_BYTES = 64, 16, 32 << 20
# Idle blocks are kept up to this share of the device for each size, but always one, and for this
# many sizes.
_KEPT_SHARE = 1 / 16
_MOST_KEPT = 64
MOST_SIZES = 32
# After so many waits a budget that was halved is doubled.
_WAITS = 256


class Budget:
    """How many bytes of idle blocks one device may have before an op has to wait for one."""

    __slots__ = (
        "_device",
        "_needed_bytes",
        "_pool",
        "_share",
        "_total_bytes",
        "_waits_then",
        "waits",
    )

    def __init__(self, device: Device, pool: Pool) -> None:
        self._device = device
        self._pool = pool
        self._total_bytes = device.memory().total_bytes
        # The maximum of what was in use, as far as anyone looked.
        self._needed_bytes = 0
        # Halved whenever memory is short, and doubled when ops have waited often since.
        self._share = 1.0
        self._waits_then = 0
        # Counts the reuses that made an op wait, since no room was left.
        self.waits = Tickets()

    @property
    def limit_bytes(self) -> int:
        total = self._total_bytes
        wanted = max(self._needed_bytes, _LEAST_SHARE * total)
        return int(self._share * min(wanted, _MOST_SHARE * total))

    def has_room_for(self, home: Size) -> bool:
        """True if another block of this size may be made, though some are idle. The caller has one
        of these in its hand."""
        size_bytes, many = home.size_bytes, len(home.in_use)
        home.most_in_use = max(home.most_in_use, many)
        held = holdings_of(self._device).tally.now
        idle = self._pool.idle_bytes
        self._needed_bytes = max(self._needed_bytes, held - idle)
        return (
            many + len(home.idle) + 1 < max(home.enough, 2 * home.most_in_use)
            and idle + size_bytes <= self.limit_bytes
            and held + size_bytes <= self._total_bytes // 2
        )

    def most_kept(self, size_bytes: int) -> int:
        """The number of idle blocks of this size that are kept."""
        return max(1, min(_MOST_KEPT, int(_KEPT_SHARE * self._total_bytes) // size_bytes))

    def shrink(self) -> None:
        """Memory is short, or the program wants it for others."""
        self._share /= 2
        self._needed_bytes = 0
        self._waits_then = self.waits.taken

    def note_wait(self) -> None:
        """A result takes a block that is in use, for lack of room."""
        waits = self.waits.next()
        if self._share < 1 and waits - self._waits_then >= _WAITS:
            self._share *= 2
            self._waits_then = waits


class Pool:
    """The blocks of one device, in one life of its context, by their size."""

    __slots__ = ("budget", "sizes")

    def __init__(self, device: Device) -> None:
        self.sizes: dict[int, Size] = {}
        self.budget = Budget(device, self)

    @property
    def idle_bytes(self) -> int:
        return sum(home.size_bytes * len(home.idle) for home in list(self.sizes.values()))


class Size:
    """The blocks of one size: idle ones, and those in use by their addresses.

    Blocks in use are held here, too. Otherwise a block that dies in a cycle of garbage would take
    its allocation with it: the allocation's finaliser runs before `Block.__del__`, which could only
    revive memory that is about to be freed.
    """

    __slots__ = ("budget", "enough", "idle", "in_use", "most_in_use", "size_bytes")

    def __init__(self, size_bytes: int, budget: Budget) -> None:
        self.size_bytes = size_bytes
        self.budget = budget
        # With so many blocks an op waits rather than that another one is made.
        enough = max(_LEAST_BLOCKS, min(_BLOCKS, _CACHED_BYTES // size_bytes))
        self.enough = min(enough, budget.most_kept(size_bytes))
        # As far as anyone looked.
        self.most_in_use = 0
        # Beyond this many idle blocks, the oldest is freed.
        self.idle: deque[Allocation] = deque(maxlen=budget.most_kept(size_bytes))
        self.in_use: dict[int, Allocation] = {}


# Functions that are called with memory of a dead array that a new result takes: see `profile`.
HANDING_ON: list[Callable[[Region], None]] = []
# By device and token of its context's life: a reset ends the memory of a life.
POOLS: dict[tuple[int, object], Pool] = {}


def pool_of(device: Device) -> Pool:
    """The pool of a device in its current life."""
    key = device.ordinal, device.context.token
    found = POOLS.get(key)
    if found is None:
        for other in list(POOLS):
            if other[0] == key[0] and other != key:
                # Its blocks were lost in a reset.
                POOLS.pop(other, None)
        # dict.setdefault is one C call: all threads get the same pool.
        found = POOLS.setdefault(key, Pool(device))
    return found


def size_among(pool: Pool, size_bytes: int) -> Size:
    """New lists for this size; with too many sizes all lists begin anew.

    That frees all idle blocks. A block in use is freed when it returns to a list that only blocks
    refer to.
    """
    sizes = pool.sizes
    if len(sizes) >= MOST_SIZES:
        sizes.clear()
    # dict.setdefault is one C call: all threads get the same lists.
    return sizes.setdefault(size_bytes, Size(size_bytes, pool.budget))


def empty_pools(ordinal: int | None = None) -> int:
    """Drop all idle blocks, of all devices or of one; returns their bytes.

    They are freed as dead arrays are, and fewer blocks will be idle from now on.
    """
    freed = 0
    for pool in _pools(ordinal):
        pool.budget.shrink()
    for home in _homes(ordinal):
        while True:
            # One at a time: blocks that another thread takes meanwhile are not counted.
            try:
                home.idle.pop()
            except IndexError:
                break
            freed += home.size_bytes
    return freed


def put_in_order() -> None:
    """Let the idle blocks be taken in the order of their addresses, whatever was done before."""
    for home in _homes(None):
        blocks = sorted(home.idle.copy(), key=lambda each: each.region)
        home.idle.clear()
        home.idle.extend(blocks)


def idle_bytes(ordinal: int | None = None) -> int:
    """The bytes that are kept for later results, on all devices or on one."""
    return sum(pool.idle_bytes for pool in _pools(ordinal))


def idle_bytes_of(life: tuple[int, object]) -> int:
    """The bytes kept under one key of `POOLS`; memory lost in a reset is under another key."""
    pool = POOLS.get(life)
    return 0 if pool is None else pool.idle_bytes


def idle_allocations(ordinal: int) -> list[Allocation]:
    """The allocations that are kept for later results on that device."""
    # deque.copy is one C call: other threads take from it meanwhile.
    return [each for home in _homes(ordinal) for each in home.idle.copy()]


def _pools(ordinal: int | None) -> list[Pool]:
    return [pool for (where, _), pool in list(POOLS.items()) if ordinal in (None, where)]


def _homes(ordinal: int | None) -> list[Size]:
    return [home for pool in _pools(ordinal) for home in list(pool.sizes.values())]
