"""Cellar. Happens-before between the threads of a launch, beyond barriers of whole blocks.

Compiled code handles barriers of whole blocks and full barriers of warps. It reports the rest here:
barriers of some warps or some lanes, fences, atomics and mbarriers. A warp *knows* a time for each
warp of the launch: that warp's accesses up to this time come before the knowing warp's next access.
Knowledge is passed on as in PTX. A strong write behind a fence, or a releasing write, leaves the
warp's knowledge with the word. A strong read with a fence or a barrier of the block behind it, or
an acquiring read, takes the knowledge over. A fence of block scope works only within its block.

The order errs on one side: lanes of a warp learn together, and a thread at a barrier also learns
what others brought a little later. So a race may be missed, but none is invented.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Final, TypeAlias

from cudasync.softgpu.interface.race_records import MOST_WARPS, State, Strength

if TYPE_CHECKING:
    from collections.abc import Iterator

Known: TypeAlias = dict[int, int]
"""A time by warp of the launch. Never changed once it is shared."""

_LANES: Final = 32
# The number of facts handed on after which races between blocks are no longer checked.
MOST_TOLD: Final = 1 << 22


class _Word:
    """The knowledge left with a word: for all readers (`wide`), and for readers of a block."""

    __slots__ = ("near", "wide")

    def __init__(self) -> None:
        self.wide: Known = {}
        self.near: dict[int, Known] = {}


class _Barrier:
    """A barrier with a count: the number of threads that have come, and their knowledge."""

    __slots__ = ("brought", "count")

    def __init__(self) -> None:
        self.count = 0
        self.brought: Known = {}


class BlockOrder:
    """The knowledge of the warps of the block that is now in a slot."""

    def __init__(self, state: ctypes.Array[ctypes.c_uint64]) -> None:
        self.state = state
        self.block = state[State.BLOCK]
        self.first = state[State.FIRST_WARP]
        self.warps = state[State.WARPS]
        self.known: list[Known] = [{}] * self.warps
        # By warp: knowledge from strong reads, effective behind a fence; True if from `wide`.
        self.news: list[list[tuple[Known, bool]]] = [[] for _ in range(self.warps)]
        # By warp and lane: the time up to which each other lane comes before it.
        self.lanes: dict[int, list[list[int]]] = {}
        # By warp: the times at which its groups of copies ended.
        self.groups: dict[int, list[int]] = {}
        self.barriers: dict[int, _Barrier] = {}
        self.awaited: dict[tuple[int, int], _Barrier] = {}
        # By number and parity: the knowledge of the threads at a barrier of the whole block.
        self.together: dict[tuple[int, bool], Known] = {}

    def own(self, of: State, warp: int) -> int:
        """The value for a warp of a per-warp word of the state."""
        return self.state[of + warp]

    def of_lanes(self, warp: int, lane: int, other: int) -> int:
        """The time up to which lane `other` of a warp comes before `lane`."""
        rows = self.lanes.get(warp)
        together = max(self.own(State.TOGETHER, warp), self.own(State.FLOOR, warp))
        return max(together, rows[lane][other] if rows is not None else 0)

    def of_warp(self, warp: int, other: int) -> int:
        """The time up to which warp `other` of the launch comes before `warp` of this block."""
        is_here = self.first <= other < self.first + self.warps
        return max(self.known[warp].get(other, 0), self.own(State.FLOOR, warp) if is_here else 0)

    def leaves(self, warp: int, time: int, floor: int, *, fenced: bool = False) -> Known:
        """The knowledge of a thread that knows this warp's accesses up to a time.

        With `fenced`, only the order before the fence counts, and what each other warp has put
        behind a fence before the last barrier.
        """
        found = dict(self.known[warp])
        now = self.own(State.FLOOR, warp)
        for each in range(self.warps):
            until = floor
            if fenced:
                until = max(floor, min(now, self.own(State.FENCED_WIDE, each)))
            key = self.first + each
            found[key] = max(found.get(key, 0), until)
        key = self.first + warp
        found[key] = max(found[key], time)
        return found


class ThreadOrder:
    """The order of all threads of a launch, except for what compiled code handles."""

    def __init__(self) -> None:
        self._words: dict[tuple[int, int], _Word] = {}
        self._told = 0

    @property
    def words(self) -> int:
        """The number of words with knowledge."""
        return len(self._words)

    @property
    def gave_up(self) -> bool:
        """Whether the limit was passed, so that races between blocks are no longer checked."""
        return self._told > MOST_TOLD

    def _learn(self, block: BlockOrder, warp: int, more: Known) -> None:
        known = block.known[warp]
        if not more or known is more or self.gave_up:
            return
        block.state[State.KNOWS] = 1
        block.known[warp] = self._joined(known, more)

    def _joined(self, known: Known, more: Known) -> Known:
        if not known or known is more:
            return more
        self._told += len(more)
        found = dict(known)
        for key, time in more.items():
            if time > found.get(key, 0):
                found[key] = time
        return found

    # Barriers.

    def arrive(
        self,
        block: BlockOrder,
        warp: int,
        mask: int,
        number: int,
        count: int,
        waits: int,
        time: int,
    ) -> None:
        """Lanes come to a barrier of the block; knowledge of earlier strong reads takes effect."""
        news, block.news[warp] = block.news[warp], []
        for known, _ in news:
            self._learn(block, warp, known)
        if not count:
            key = number, self._is_odd(block, warp, mask, number)
            before = block.together.get(key, {})
            block.together[key] = self._joined(before, block.known[warp])
            return
        barrier = block.barriers.setdefault(number, _Barrier())
        left = block.leaves(warp, time, block.own(State.FLOOR, warp))
        barrier.brought = self._joined(barrier.brought, left)
        barrier.count += mask.bit_count()
        if waits:
            block.awaited[number, warp] = barrier
        if barrier.count >= count:
            del block.barriers[number]

    def leave(self, block: BlockOrder, warp: int, mask: int, number: int, count: int) -> None:
        """The barrier opens for these lanes."""
        if not count:
            # Their parity bits were flipped since they came.
            key = number, self._is_odd(block, warp, mask, number)
            self._learn(block, warp, block.together.get(key, {}))
            return
        barrier = block.awaited.pop((number, warp), None)
        if barrier is not None:
            self._learn(block, warp, barrier.brought)

    @staticmethod
    def _is_odd(block: BlockOrder, warp: int, mask: int, number: int) -> bool:
        place = State.PARITY + number * MOST_WARPS + warp
        return bool(block.state[place] & mask)

    def warp_barrier(
        self, block: BlockOrder, warp: int, mask: int, members: dict[int, int], time: int
    ) -> None:
        """Lanes of a mask have met the lanes of their own member masks."""
        rows = block.lanes.get(warp)
        if rows is None:
            rows = block.lanes[warp] = [[0] * _LANES for _ in range(_LANES)]
        groups: dict[int, list[int]] = {}
        for lane in lanes_of(mask):
            groups.setdefault(members[lane], []).append(lane)
        for member, here in groups.items():
            met = [*lanes_of(member)]
            joined = [max(times) for times in zip(*(rows[lane] for lane in met), strict=True)]
            for lane in met:
                joined[lane] = time
            for lane in here:
                rows[lane] = joined

    # Words.

    def fence(self, block: BlockOrder, warp: int, *, is_wide: bool) -> None:
        """Knowledge from earlier strong reads takes effect behind the fence."""
        news = block.news[warp]
        block.news[warp] = [] if is_wide else [each for each in news if each[1]]
        for known, is_for_anybody in news:
            if is_wide or not is_for_anybody:
                self._learn(block, warp, known)

    def strong(
        self, block: BlockOrder, warp: int, words: list[tuple[int, int]], strength: int, time: int
    ) -> None:
        """A strong access: it takes the knowledge left with words, leaves its own, or both."""
        is_wide = bool(strength & Strength.WIDE)
        if strength & Strength.READS:
            for each in words:
                self._hear(block, warp, each, strength, is_wide=is_wide)
        if not strength & Strength.WRITES:
            return
        if strength & Strength.RELEASES:
            near = block.leaves(warp, time, block.own(State.FLOOR, warp))
            wide = near if is_wide else {}
        else:
            fenced = block.own(State.FENCED, warp)
            near = block.leaves(warp, fenced, block.own(State.FLOOR, warp)) if fenced else {}
            fenced = block.own(State.FENCED_WIDE, warp)
            wide = {}
            if fenced and is_wide:
                floor = block.own(State.FLOOR_FENCED, warp)
                wide = block.leaves(warp, fenced, floor, fenced=True)
        goes_on = bool(strength & (Strength.READS | Strength.JOINS))
        for key in words:
            word = self._words.get(key)
            if word is None or not goes_on:
                if not near:
                    self._words.pop(key, None)
                    continue
                word = self._words[key] = _Word()
            if near:
                before = word.near.get(block.block, {})
                word.near[block.block] = self._joined(before, near)
            if wide:
                word.wide = self._joined(word.wide, wide)

    def _hear(
        self, block: BlockOrder, warp: int, key: tuple[int, int], strength: int, *, is_wide: bool
    ) -> None:
        word = self._words.get(key)
        if word is None:
            return
        heard = [(word.near.get(block.block, {}), False)]
        if is_wide:
            heard.append((word.wide, True))
        for known, is_for_anybody in heard:
            if not known:
                continue
            if strength & Strength.ACQUIRES:
                self._learn(block, warp, known)
            elif not any(known is each for each, _ in block.news[warp]):
                block.news[warp].append((known, is_for_anybody))
                block.state[State.KNOWS] = 1

    # Copies.

    def copies(self, block: BlockOrder, warp: int, groups: int, time: int) -> None:
        """A group of copies ends (`groups` is -1), or all except the last `groups` are awaited."""
        ended = block.groups.setdefault(warp, [])
        if groups < 0:
            ended.append(time)
            return
        if not groups:
            until = time
        else:
            until = ended[-1 - groups] if len(ended) > groups else 0
        place = State.COPIED + warp
        block.state[place] = max(block.state[place], until)


def lanes_of(mask: int) -> Iterator[int]:
    """The lanes of a mask, in ascending order."""
    for lane in range(_LANES):
        if mask >> lane & 1:
            yield lane


def words_at(address: int, spacing: int, mask: int) -> dict[int, int]:
    """The word of each lane of a mask, in a row of words that compiled code wrote."""
    row = (ctypes.c_uint64 * _LANES).from_address(address)
    return {lane: row[lane * spacing] for lane in lanes_of(mask)}
