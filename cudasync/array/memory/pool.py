"""Floor 4, memory. The bytes of results: kept when a result dies, for the next of that size.

Nothing is remembered of who used a block and where. Its bytes have their history in the engine's
map: whoever writes them next comes after all who used them, and an overwrite heals what a
failed op left. So what is taken here has to be overwritten whole before it is read.

There is no lock. `deque.pop` and `append` are one C call each: no two takers get the same block,
and a finaliser may give one back anywhere. What is kept is bounded by looking first, so threads
that come together may keep a block too many.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from cudasync.array.allocation import Allocation
from cudasync.array.handed import Handed
from cudasync.engine import engine

if TYPE_CHECKING:
    from cudasync.driver import Device

# Idle blocks of one size are kept up to this many bytes, but always one; and of this many sizes.
KEPT_BYTES = 64 << 20
MOST_SIZES = 32


class _Size:
    """The blocks of one size: those that are idle, and those in use by their addresses.

    What is in use is held here, too. A block that dies in a cycle of garbage would else take its
    allocation with it: its finaliser runs before `Block.__del__`, which could only bring back what
    is about to be freed.
    """

    __slots__ = ("idle", "in_use", "size_bytes")

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self.idle: deque[Allocation] = deque()
        self.in_use: dict[int, Allocation] = {}


class Block:
    """Device memory for one array and its views; it goes back when the last of them is gone."""

    __slots__ = ("_home", "_taken", "handed", "ptr")

    def __init__(self, taken: Allocation, home: _Size) -> None:
        self._taken = taken
        self._home = home
        self.handed = Handed()
        ptr = self.ptr = taken.region[0]
        home.in_use[ptr] = taken

    def __del__(self) -> None:
        home = self._home
        taken = home.in_use.pop(self.ptr, None)
        if taken is not None and len(home.idle) < most_of(home.size_bytes):
            home.idle.append(taken)

    @property
    def device(self) -> Device:
        return self._taken.device

    @property
    def only_device(self) -> Device | None:
        return self._taken.only_device

    @property
    def dlpack_device(self) -> tuple[int, int]:
        return self._taken.dlpack_device


def most_of(size_bytes: int) -> int:
    """How many idle blocks of this size are kept."""
    return max(1, min(64, KEPT_BYTES // size_bytes))


# By device and by what the life of its context goes by: a reset ends the memory in it.
_idle: dict[tuple[int, object], dict[int, _Size]] = {}


class Source:
    """Where blocks of one size come from, on one device, in one life of its context."""

    __slots__ = ("_device", "_home", "_size_bytes")

    def __init__(self, device: Device, size_bytes: int) -> None:
        sizes = _idle.setdefault((device.ordinal, device.context.token), {})
        size_bytes = max(1, size_bytes)
        if size_bytes not in sizes and len(sizes) >= MOST_SIZES:
            # The blocks in use go home to lists that nobody asks any more.
            sizes.clear()
        self._device = device
        self._size_bytes = size_bytes
        self._home = sizes.setdefault(size_bytes, _Size(size_bytes))

    def take(self) -> Block:
        """A block, with whatever it held. No driver call where one is idle; never waits, unless
        memory is exhausted: see `Allocation`."""
        try:
            taken = self._home.idle.pop()
        except IndexError:
            taken = Allocation(engine(), self._device, self._size_bytes)
        return Block(taken, self._home)


def empty_pools() -> None:
    """Let go of all idle blocks, of all devices; they are freed as dead arrays are."""
    for sizes in list(_idle.values()):
        for home in list(sizes.values()):
            home.idle.clear()


def idle_bytes() -> int:
    """How many bytes are kept for results to come."""
    homes = [home for sizes in list(_idle.values()) for home in list(sizes.values())]
    return sum(home.size_bytes * len(home.idle) for home in homes)
