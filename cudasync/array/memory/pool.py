"""Floor 4, memory. The bytes of results: kept when a result dies, for the next of that size.

The pool does not remember the users of a block. The engine's map has the history of its bytes: the
next writer comes after all earlier users, and an overwrite heals damage of a failed op. So a block
must be overwritten whole before it is read. Which idle block is taken: see `reuse`.

There is no lock. `deque.pop` and `append` are one C call each, so no two takers get the same block,
and a finaliser may give one back anywhere. The deque itself bounds the idle blocks.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any
from weakref import ref

from cudasync.array.allocation import Allocation
from cudasync.array.memory.free_lists import HANDING_ON, Size, pool_of, size_among
from cudasync.array.memory.reuse import instead, is_in_use
from cudasync.driver.extensions import exploration
from cudasync.engine import engine

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cudasync.driver import Device
    from cudasync.driver.ownership.context_life import Life


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

    __slots__ = ("_before", "_device", "_pool", "_size_bytes", "_sizes")

    def __init__(self, device: Device, size_bytes: int) -> None:
        self._device = device
        self._size_bytes = max(1, size_bytes)
        self._pool = pool_of(device)
        self._sizes = self._pool.sizes
        # The last two blocks, as weak references: memory that was freed is not kept by them.
        self._before: deque[Callable[[], Allocation | None]] = deque((_none, _none), 2)

    def take(self, inputs: Sequence[Any] = ()) -> Block:
        """An uninitialised block for the result of an op with these operands.

        No driver call, if one is idle that makes the op wait for nothing: see `reuse`. Never waits,
        unless memory is exhausted: see `Allocation`.
        """
        home = self._sizes.get(self._size_bytes)
        if home is None:
            home = size_among(self._pool, self._size_bytes)
        idle, before = home.idle, self._before
        # So a loop takes the same memory in each turn, or in every other one. Explored runs begin
        # alike: they know of no earlier run.
        taken = None if exploration.is_under_way else before[0]()
        try:
            if taken is not None and taken in idle:
                idle.remove(taken)
            else:
                taken = idle.pop()
            if is_in_use(taken.region):
                taken = instead(home, taken, inputs)
        except (IndexError, ValueError):
            # There is none, or another thread was quicker.
            taken = None
        if taken is None:
            taken = Allocation(engine(), self._device, self._size_bytes)
        elif HANDING_ON:
            for tell in tuple(HANDING_ON):
                tell(taken.region)
        before.append(ref(taken))
        return Block(taken, home)


def _none() -> None:
    """The block before the first one."""
