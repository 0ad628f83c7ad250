"""Floor 4, memory. The bytes of results: kept when a result dies, for the next of that size.

The pool does not remember the users of a block. The engine's map has the history of its bytes: the
next writer comes after all earlier users, and an overwrite heals damage of a failed op. So a block
must be overwritten whole before it is read.

There is no lock. `deque.pop` and `append` are one C call each, so no two takers get the same block,
and a finaliser may give one back anywhere. The deque itself bounds the idle blocks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.array.allocation import Allocation
from cudasync.array.memory.free_lists import POOLS, Size
from cudasync.engine import engine

if TYPE_CHECKING:
    from cudasync.driver import Device
    from cudasync.driver.ownership.context_life import Life

# Idle blocks are kept up to this many bytes a size, but always one, and for this many sizes.
KEPT_BYTES = 64 << 20
MOST_SIZES = 32


def most_of(size_bytes: int) -> int:
    """The number of idle blocks of this size that are kept."""
    return max(1, min(64, KEPT_BYTES // size_bytes))


class Block:
    """Device memory for one array and its views; it goes back when the last of them is gone."""

    __slots__ = ("_home", "_taken", "handed", "ptr", "region")

    def __init__(self, taken: Allocation, home: Size) -> None:
        self._taken = taken
        self._home = home
        # No part of it is handed out: otherwise it would have been freed.
        self.handed = taken.handed
        region = self.region = taken.region
        ptr = self.ptr = region[0]
        home.in_use[ptr] = taken

    def __del__(self) -> None:
        home = self._home
        taken = home.in_use.pop(self.ptr, None)
        # A foreign stream may still use memory that it was handed. Such a block is freed, which
        # takes longer than reuse by the next result.
        if taken is not None and not self.handed.parts:
            home.idle.append(taken)

    @property
    def device(self) -> Device:
        return self._taken.device

    @property
    def only_device(self) -> Device | None:
        return self._taken.only_device

    @property
    def is_open_to_peers(self) -> bool:
        return self._taken.is_open_to_peers

    @property
    def life(self) -> Life | None:
        return self._taken.life

    @property
    def dlpack_device(self) -> tuple[int, int]:
        return self._taken.dlpack_device


class Source:
    """The source of blocks of one size, on one device, in one life of its context."""

    __slots__ = ("_device", "_size_bytes", "_sizes")

    def __init__(self, device: Device, size_bytes: int) -> None:
        self._device = device
        self._size_bytes = max(1, size_bytes)
        for ordinal, life in list(POOLS):
            if ordinal == device.ordinal and life is not device.context.token:
                # Its blocks were lost in a reset.
                POOLS.pop((ordinal, life), None)
        self._sizes = POOLS.setdefault((device.ordinal, device.context.token), {})

    def take(self) -> Block:
        """An uninitialised block. No driver call if one is idle; never waits, unless memory is
        exhausted: see `Allocation`."""
        home = self._sizes.get(self._size_bytes)
        if home is None:
            home = size_among(self._sizes, self._size_bytes)
        try:
            taken = home.idle.pop()
        except IndexError:
            taken = Allocation(engine(), self._device, self._size_bytes)
        return Block(taken, home)


def size_among(sizes: dict[int, Size], size_bytes: int) -> Size:
    """New lists for this size; with too many sizes all lists begin anew.

    That frees all idle blocks. A block in use is freed when it returns to a list that only blocks
    refer to.
    """
    if len(sizes) >= MOST_SIZES:
        sizes.clear()
    # dict.setdefault is one C call: all threads get the same lists.
    return sizes.setdefault(size_bytes, Size(size_bytes, most_of(size_bytes)))
