"""Cellar. Races between the threads of one launch: answers the questions of compiled code.

Compiled code (`jit/checks/race_functions.py`) keeps the accesses, and asks about two accesses that
it cannot order. A pair of instructions is reported once in a launch.
"""

from __future__ import annotations

import ctypes
import mmap
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cudasync.softgpu.core.checks.thread_order import BlockOrder, ThreadOrder, words_at
from cudasync.softgpu.interface import race_records
from cudasync.softgpu.interface.race_records import Ask, Head, State

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from cudasync.ptx import ir

_FUNCTION: Final = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_uint64)
_ORDERED: Final = (1 << 64) - 1
_RACE: Final = 0
_WARPS: Final = (1 << race_records.WARP_BITS) - 1
_NO_RESERVE: Final = 0x4000
_KINDS: Final = {1: "read", 2: "write", 3: "write"}


@dataclass(frozen=True, slots=True)
class Side:
    """One of two accesses: the linear indices of its block and thread, its site and kind.

    `site` numbers the kernel's instructions that touch memory, from 1; 0 stands for one without a
    number.
    """

    block: int
    thread: int
    site: int
    is_write: bool


@dataclass(frozen=True, slots=True)
class ThreadRace:
    """Two accesses that nothing orders; `offset` is the offset in shared memory, or None."""

    first: Side
    second: Side
    address: int
    size_bytes: int
    offset: int | None
    is_one_warp: bool
    is_copy: bool


class _Slot:
    """The state and cells that compiled code keeps for one block at a time."""

    def __init__(self, head: int, shared: int, shared_bytes: int, warps: int) -> None:
        self._cells = _memory(race_records.WORD_BYTES * (shared_bytes // 4 + 1))
        self._splits = _memory(race_records.SPLIT_BYTES * (shared_bytes // 4 + 1))
        self.words = (ctypes.c_uint64 * race_records.STATE_WORDS)()
        self.address = ctypes.addressof(self.words)
        words = self.words
        words[State.HEAD] = head
        words[State.WARPS] = warps
        words[State.SHARED], words[State.SHARED_BYTES] = shared, shared_bytes
        words[State.CELLS], words[State.SPLIT_CELLS] = map(_address, (self._cells, self._splits))
        self.order: BlockOrder | None = None

    def block(self) -> BlockOrder:
        """The order of the warps of the current block."""
        if self.order is None or self.order.block != self.words[State.BLOCK]:
            self.order = BlockOrder(self.words)
        return self.order


class ThreadRaces:
    """The threads of one launch; implements `access_recording.Races`."""

    def __init__(
        self,
        ranges: Iterable[tuple[int, int]],
        sites: Sequence[ir.Instruction],
        threads: int,
        tell: Callable[[ThreadRace], None],
    ) -> None:
        """Watch shared memory and these ranges of global memory, which are disjoint.

        `sites` are the numbered instructions, from 1. A block has `threads` threads.
        """
        self._sites = sites
        self._threads = threads
        self._tell = tell
        self._order = ThreadOrder()
        self._slots: dict[object, _Slot] = {}
        self._by_address: dict[int, _Slot] = {}
        # An exception that a signal handler raised during a callback.
        self.raised: BaseException | None = None
        self._callback = _FUNCTION(self._called)
        self._head = (ctypes.c_uint64 * race_records.HEAD_WORDS)()
        self._told = (ctypes.c_ubyte * race_records.MOST_SITES**2)()
        rows = sorted(each for each in ranges if each[0] < each[1])
        self._rows = (ctypes.c_uint64 * (race_records.ROW_WORDS * len(rows) + 1))()
        self._memory: list[mmap.mmap] = []
        for index, (start, end) in enumerate(rows):
            count = (end - start) // 4 + 1
            sizes = count * race_records.WORD_BYTES, count * race_records.SPLIT_BYTES
            made = [_memory(each) for each in sizes]
            self._memory += made
            place = race_records.ROW_WORDS * index
            self._rows[place : place + race_records.ROW_WORDS] = [start, end, *map(_address, made)]
        head = self._head
        head[Head.TIME] = 1
        head[Head.CALLBACK] = ctypes.cast(self._callback, ctypes.c_void_p).value or 0
        head[Head.ROWS], head[Head.ROW_COUNT] = ctypes.addressof(self._rows), len(rows)
        head[Head.TOLD] = ctypes.addressof(self._told)

    def state_of(self, slot: object, shared: int, shared_bytes: int, warps: int) -> int:
        """The address of a fresh state for a slot; see `access_recording.Races`."""
        found = self._slots.get(slot)
        if found is None:
            made = _Slot(ctypes.addressof(self._head), shared, shared_bytes, warps)
            found = self._slots[slot] = self._by_address[made.address] = made
        found.words[State.BLOCK] = 0
        found.order = None
        return found.address

    @property
    def gave_up(self) -> bool:
        """Whether races between blocks are no longer checked; see `ThreadOrder.gave_up`."""
        return self._order.gave_up

    # Callbacks of compiled code

    def _called(self, state: int) -> int:
        """Never raises, because the caller is compiled code."""
        try:
            head = self._head
            words = head[Head.ARGUMENTS : Head.ARGUMENTS + 8]
            slot = self._by_address[state]
            if head[Head.ASKED] == Ask.CONFLICT:
                return self._conflict(slot, *words[:5])
            self._happened(slot.block(), head[Head.ASKED], *words[:6])
        except BaseException as error:
            self.raised = self.raised or error
        return _ORDERED

    def _happened(self, block: BlockOrder, what: int, warp: int, mask: int, *more: int) -> None:
        order = self._order
        match what:
            case Ask.ARRIVE:
                order.arrive(block, warp, mask, *more)
            case Ask.LEAVE:
                order.leave(block, warp, mask, *more[:2])
            case Ask.WARP:
                members = words_at(more[0], more[1], mask)
                order.warp_barrier(block, warp, mask, members, more[2])
            case Ask.FENCE:
                order.fence(block, warp, is_wide=bool(more[0]))
            case Ask.STRONG:
                addresses = sorted({*words_at(more[1], more[2], mask).values()})
                keys = [(self._home(block, each), each) for each in addresses]
                order.strong(block, warp, keys, more[0], more[3])
                self._head[Head.OBJECTS] = order.words
            case Ask.COPIES:
                order.copies(block, warp, ctypes.c_int64(more[0]).value, more[1])
            case _:
                raise AssertionError(what)

    @staticmethod
    def _home(block: BlockOrder, address: int) -> int:
        """The block of a word in shared memory; 0 for global memory."""
        start = block.state[State.SHARED]
        is_shared = start <= address < start + block.state[State.SHARED_BYTES]
        return block.block if is_shared else 0

    def _conflict(self, slot: _Slot, old: int, kinds: int, me: int, address: int, size: int) -> int:
        """The time up to which the thread of `old` comes before `me`; 0 for a race."""
        block = slot.block()
        time = old >> race_records.TIME_SHIFT
        warp = _warp_in(me, block)
        is_here = _warp_in(old, block) < block.warps
        is_copy = bool(old & race_records.PENDING)
        if is_copy and block.own(State.COPIED, _warp_in(old, block)) < time:
            self._found(block, old, kinds, me, address, size, is_copy=True)
            return _RACE
        differs = (old ^ me) & race_records.THREAD_MASK
        if not differs:
            return time
        if not differs & race_records.WARP_MASK:
            until = block.of_lanes(warp, _lane(me), _lane(old))
        else:
            key = old >> race_records.WARP_SHIFT & _WARPS
            until = block.of_warp(warp, block.first + _warp_in(old, block) if is_here else key)
            if not is_here and self._order.gave_up:
                return time
        if until >= time:
            return until
        if is_here and self._are_strong(old, me):
            return time
        self._found(block, old, kinds, me, address, size, is_copy=False)
        return _RACE

    def _are_strong(self, *entries: int) -> bool:
        """Whether both accesses are strong; block scope suffices within a block."""
        sites = [each >> race_records.SITE_SHIFT & race_records.MOST_SITES - 1 for each in entries]
        return all(
            0 < each <= len(self._sites) and race_records.is_strong(self._sites[each - 1])
            for each in sites
        )

    def _found(
        self,
        block: BlockOrder,
        old: int,
        kinds: int,
        me: int,
        address: int,
        size: int,
        *,
        is_copy: bool,
    ) -> None:
        start = block.state[State.SHARED]
        is_shared = start <= address < start + block.state[State.SHARED_BYTES]
        self._tell(
            ThreadRace(
                self._side(block, old, is_write=kinds >> 2 > 1),
                self._side(block, me, is_write=kinds & 3 > 1),
                address,
                size,
                address - start if is_shared else None,
                is_one_warp=not (old ^ me) & race_records.WARP_MASK,
                is_copy=is_copy,
            )
        )

    def _side(self, block: BlockOrder, entry: int, *, is_write: bool) -> Side:
        lanes = 32 if block.warps == -(-self._threads // 32) else 16
        warp = _warp_in(entry, block)
        number = block.block - 1
        if warp >= block.warps:
            number, warp = divmod(entry >> race_records.WARP_SHIFT & _WARPS, block.warps)
        site = entry >> race_records.SITE_SHIFT & race_records.MOST_SITES - 1
        return Side(number, warp * lanes + _lane(entry), site, is_write)


def _warp_in(entry: int, block: BlockOrder) -> int:
    """The warp's index in the block; beyond the block's warps for a warp of another block."""
    return ((entry >> race_records.WARP_SHIFT) - block.first) & _WARPS


def _lane(entry: int) -> int:
    return entry >> race_records.LANE_SHIFT & (1 << race_records.LANE_BITS) - 1


def _memory(size_bytes: int) -> mmap.mmap:
    """Zeroed memory; its pages come when they are touched."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_RESERVE
    return mmap.mmap(-1, size_bytes, flags=flags)


def _address(memory: mmap.mmap) -> int:
    return ctypes.addressof(ctypes.c_ubyte.from_buffer(memory))
