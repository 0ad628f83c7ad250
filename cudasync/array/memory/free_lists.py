"""Floor 4, memory. The lists of the pools: idle blocks, blocks in use, and freeing idle blocks."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cudasync.array.allocation import Allocation


class Size:
    """The blocks of one size: idle ones, and those in use by their addresses.

    Blocks in use are held here, too. Otherwise a block that dies in a cycle of garbage would take
    its allocation with it: the allocation's finaliser runs before `Block.__del__`, which could only
    revive memory that is about to be freed.
    """

    __slots__ = ("idle", "in_use", "size_bytes")

    def __init__(self, size_bytes: int, most: int) -> None:
        self.size_bytes = size_bytes
        # Beyond this many idle blocks, the oldest is freed.
        self.idle: deque[Allocation] = deque(maxlen=most)
        self.in_use: dict[int, Allocation] = {}


# By device and token of its context's life: a reset ends the memory of a life.
POOLS: dict[tuple[int, object], dict[int, Size]] = {}


def empty_pools(ordinal: int | None = None) -> int:
    """Drop all idle blocks, of all devices or of one; returns their bytes.

    They are freed as dead arrays are.
    """
    freed = 0
    for home in _homes(ordinal):
        while True:
            # One at a time: blocks that another thread takes meanwhile are not counted.
            try:
                home.idle.pop()
            except IndexError:
                break
            freed += home.size_bytes
    return freed


def idle_bytes(ordinal: int | None = None) -> int:
    """The bytes that are kept for later results, on all devices or on one."""
    return sum(home.size_bytes * len(home.idle) for home in _homes(ordinal))


def idle_bytes_of(life: tuple[int, object]) -> int:
    """The bytes kept under one key of `POOLS`; memory lost in a reset is under another key."""
    return sum(home.size_bytes * len(home.idle) for home in list(POOLS.get(life, {}).values()))


def idle_allocations(ordinal: int) -> list[Allocation]:
    """The allocations that are kept for later results on that device."""
    # deque.copy is one C call: other threads take from it meanwhile.
    return [each for home in _homes(ordinal) for each in home.idle.copy()]


def _homes(ordinal: int | None) -> list[Size]:
    return [
        home
        for (where, _), sizes in list(POOLS.items())
        if ordinal is None or where == ordinal
        for home in list(sizes.values())
    ]
