"""Floor 4, memory. The bytes of results: kept when a result dies, for the next of that size.

The pool does not remember the users of a block. The engine's map has the history of its bytes: the
next writer comes after all earlier users, and an overwrite heals damage of a failed op. So a block
must be overwritten whole before it is read. Which idle block is taken: see `reuse`.

There is no lock. `deque.pop` and `append` are one C call each, so no two takers get the same block,
and a finaliser may give one back anywhere. The deque itself bounds the idle blocks.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Protocol
from weakref import ref

from cudasync.array.allocation import Allocation
from cudasync.array.memory.free_lists import HANDING_ON, Size, pool_of, size_among
from cudasync.array.memory.reuse import instead, is_in_use
from cudasync.driver.extensions import exploration
from cudasync.engine import engine
from cudasync.engine.hazards.interval_map import Region

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Sequence

    from cudasync.driver import Device
    from cudasync.driver.ownership.context_life import Life


class Block:
    """Device memory for one array and its views; it goes back when the last of them is gone."""

    __slots__ = ("_home", "handed", "ptr", "region", "taken")

    def __init__(self, taken: Allocation, home: Size) -> None:
        self.taken = taken
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
        return self.taken.device

    @property
    def only_device(self) -> Device | None:
        return self.taken.only_device

    @property
    def is_open_to_peers(self) -> bool:
        return self.taken.is_open_to_peers

    @property
    def life(self) -> Life | None:
        return self.taken.life

    @property
    def dlpack_device(self) -> tuple[int, int]:
        return self.taken.dlpack_device


class Rounds(Protocol):
    """The rounds of a loop, whose launches take memory one after the other."""

    def wanted(self, ahead: int = 0) -> Callable[[], Allocation | None] | None:
        """The memory that the next launch had in earlier rounds, or the one so far `ahead`; None if
        it had none."""

    def reserved(self) -> Container[Any]:
        """Weak references to the memory of all launches of a round."""


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

    def take(
        self, inputs: Sequence[Any] = (), rounds: Rounds | None = None, ahead: int = 0
    ) -> Block:
        """An uninitialised block for the result of an op with these operands.

        No driver call, if one is idle that makes the op wait for nothing: see `reuse`. Never waits,
        unless memory is exhausted: see `Allocation`. In a loop that is replayed, or may soon be,
        `rounds` says which block it had in earlier rounds: there the same memory is worth more than
        an op's wait. So many launches lie `ahead` of the one that writes it.
        """
        home = self._sizes.get(self._size_bytes)
        if home is None:
            home = size_among(self._pool, self._size_bytes)
        idle, before = home.idle, self._before
        try:
            # Explored runs begin alike: they know of no earlier run.
            if (
                rounds is not None
                and (wanted := rounds.wanted(ahead)) is not None
                and not exploration.is_under_way
            ):
                taken = wanted()
                if taken is not None and taken in idle:
                    idle.remove(taken)
                else:
                    taken = _apart(idle, rounds.reserved())
            else:
                # So a loop takes the same memory in each turn, or in every other one.
                taken = None if exploration.is_under_way else before[0]()
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


def memory_of(array: Any) -> Callable[[], Allocation | None] | None:
    """A weak reference to the memory of an array, if that is of the pool."""
    block = array._allocation
    return ref(block.taken) if block.__class__ is Block else None


def kept_for(values: Sequence[Any]) -> Sequence[Any]:
    """The arguments that a launch pushed directly must keep alive until it is issued: those outside
    of the pool.

    A block goes back to the pool when its array dies, and its next user is ordered behind the
    launch, whether that is issued or not. A loop then finds the same blocks idle in each round.
    """
    return [each for each in values if getattr(each, "_allocation", None).__class__ is not Block]


def _apart(idle: deque[Allocation], reserved: Container[Any]) -> Allocation | None:
    """An idle block that is not reserved for a later launch of the round; None if there is none.
    ValueError: another thread was quicker."""
    for each in idle.copy():
        if ref(each) not in reserved:
            idle.remove(each)
            return each
    return None


def _none() -> None:
    """The block before the first one."""


class Scratch:
    """Memory between two steps of one plan; it returns to the pool after the launch."""

    __slots__ = ("_allocation", "ptr", "region")

    def __init__(self, block: Block, size_bytes: int) -> None:
        # By the name that arrays have for their memory.
        self._allocation: Any = block
        self.ptr = block.ptr
        self.region = Region(self.ptr, self.ptr + size_bytes)


class Scratches:
    """The source of scratch of one size."""

    __slots__ = ("_size_bytes", "_source")

    def __init__(self, device: Device, size_bytes: int) -> None:
        self._source = Source(device, size_bytes)
        self._size_bytes = size_bytes

    def take(self, inputs: Sequence[Any] = (), rounds: Rounds | None = None) -> Scratch:
        """Uninitialised scratch for a step that reads these arrays: see `Source.take`."""
        return Scratch(self._source.take(inputs, rounds), self._size_bytes)
