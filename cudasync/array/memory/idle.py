"""Floor 4, memory. Lists of the pools: what is idle, what is in use, how to let go of it."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cudasync.array.allocation import Allocation


class Size:
    """The blocks of one size: those that are idle, and those in use by their addresses.

    What is in use is held here, too. A block that dies in a cycle of garbage would else take its
    allocation with it: its finaliser runs before `Block.__del__`, which could only bring back what
    is about to be freed.
    """

    __slots__ = ("idle", "in_use", "size_bytes")

    def __init__(self, size_bytes: int, most: int) -> None:
        self.size_bytes = size_bytes
        # Of more than so many, the one that came first is freed.
        self.idle: deque[Allocation] = deque(maxlen=most)
        self.in_use: dict[int, Allocation] = {}


# By device and by what the life of its context goes by: a reset ends the memory in it.
POOLS: dict[tuple[int, object], dict[int, Size]] = {}


def empty_pools(ordinal: int | None = None) -> int:
    """Let go of all idle blocks, of all devices or of that one; how many bytes that were.

    They are freed as dead arrays are.
    """
    freed = 0
    for home in _homes(ordinal):
        while True:
            # One at a time: what another thread takes meanwhile is not counted.
            try:
                home.idle.pop()
            except IndexError:
                break
            freed += home.size_bytes
    return freed


def idle_bytes(ordinal: int | None = None) -> int:
    """How many bytes are kept for results to come, on all devices or on that one."""
    return sum(home.size_bytes * len(home.idle) for home in _homes(ordinal))


def idle_bytes_of(life: tuple[int, object]) -> int:
    """The same of one key of `POOLS`: what went with a reset is in none that counts."""
    return sum(home.size_bytes * len(home.idle) for home in list(POOLS.get(life, {}).values()))


def idle_allocations(ordinal: int) -> list[Allocation]:
    """What is kept for results to come on that device."""
    # deque.copy is one C call: others take from it meanwhile.
    return [each for home in _homes(ordinal) for each in home.idle.copy()]


def _homes(ordinal: int | None) -> list[Size]:
    return [
        home
        for (where, _), sizes in list(POOLS.items())
        if ordinal is None or where == ordinal
        for home in list(sizes.values())
    ]
