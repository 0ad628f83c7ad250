"""Cellar. The convergence check: receives compiled code's reports on barriers and meetings."""

from __future__ import annotations

import ctypes
from ctypes import addressof
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cudasync.softgpu.core.checks.meetings import LANES, Meetings
from cudasync.softgpu.interface.convergence_records import MOST_WARPS, STATE_WORDS, Ask, State

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cudasync.softgpu.core.checks.meetings import Missed

_FUNCTION: Final = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_uint64)
_ALL: Final = (1 << LANES) - 1


@dataclass(frozen=True, slots=True)
class Told:
    """An error at a line, by a thread of a block, both given by their linear index.

    One field says what is wrong. `missed`: a lane waits for a lane that does not come.
    `other_line`: other threads of the block wait at another barrier. `come`: the number of threads
    for which a barrier opened. `members`: a mask without the thread's own bit. `shuffled`: the line
    of a shuffle from an absent lane with a used result.
    """

    line: int
    block: int
    thread: int
    missed: Missed | None = None
    other_line: int = 0
    come: int = 0
    members: int | None = None
    shuffled: int = 0

    @property
    def key(self) -> tuple[object, ...]:
        """The parts that distinguish two errors for a reader."""
        missed = self.missed
        other = (missed.other, missed.other_line) if missed is not None else None
        kinds = bool(self.come), self.members is not None, self.shuffled
        return self.line, other, self.other_line, kinds


class Convergence:
    """The blocks of one launch; implements `access_recording.Convergence`."""

    def __init__(self) -> None:
        self._states: dict[object, ctypes.Array[ctypes.c_uint64]] = {}
        self._by_address: dict[int, ctypes.Array[ctypes.c_uint64]] = {}
        # By the address of a state, and the warp.
        self._meetings: dict[int, dict[int, Meetings]] = {}
        self._told: dict[tuple[object, ...], Told] = {}
        self._callback = _FUNCTION(self._called)
        # An exception that a signal handler raised during a callback.
        self.raised: BaseException | None = None

    def state_of(self, slot: object, threads: int) -> int:
        """The address of a fresh state for a slot; see `access_recording.Convergence`."""
        words = self._states.get(slot)
        if words is None:
            words = self._states[slot] = (ctypes.c_uint64 * STATE_WORDS)()
            self._by_address[addressof(words)] = words
        address = addressof(words)
        self._over(address)
        ctypes.memset(address, 0, 8 * STATE_WORDS)
        words[State.CALLBACK] = ctypes.cast(self._callback, ctypes.c_void_p).value or 0
        words[State.THREADS] = threads
        return address

    def told(self) -> Iterator[Told]:
        """The errors of the finished launch, once for each pair of lines."""
        for address in self._by_address:
            self._over(address)
        yield from self._told.values()

    # Callbacks of compiled code

    def _called(self, address: int) -> int:
        """Never raises, because the caller is compiled code."""
        try:
            words = self._by_address[address]
            self._hear(address, words, words[State.ASKED])
        except BaseException as error:
            self.raised = self.raised or error
        return 0

    def _hear(self, address: int, words: ctypes.Array[ctypes.c_uint64], what: int) -> None:
        warp, mask, *more = words[State.ARGUMENTS : State.ARGUMENTS + 6]
        match what:
            case Ask.MEETING:
                self._meet(address, words, warp, mask, *more)
            case Ask.BARRIER:
                self._of(address, words, warp).stopped(mask, more[0])
            case Ask.END:
                self._of(address, words, warp).ended(mask)
            case Ask.OPENED:
                for each in self._meetings.get(address, {}).values():
                    each.opened()
            case Ask.MISMATCH:
                self._tell(words, warp, _lowest(mask), more[1], other_line=more[0])
            case Ask.SHORT:
                self._tell(words, warp, 0, more[0], come=more[1])
            case Ask.UNDEFINED:
                self._tell(words, warp, _lowest(mask), more[0], shuffled=more[1])
            case Ask.FRESH:
                self._over(address)
            case _:
                raise AssertionError(what)
        self._note_waiting(address, words)

    def _meet(
        self,
        address: int,
        words: ctypes.Array[ctypes.c_uint64],
        warp: int,
        mask: int,
        place: int,
        spacing: int,
        line: int,
        what: int,
    ) -> None:
        lanes = [n for n in range(LANES) if mask >> n & 1]
        read = ctypes.c_uint64.from_address
        members = {n: read(place + 8 * spacing * n).value & _ALL for n in lanes}
        strangers = [n for n in lanes if not members[n] >> n & 1]
        if strangers:
            first = strangers[0]
            self._tell(words, warp, first, line, members=members[first])
            # Their masks are wrong, so they take no part in the meeting.
            mask = sum(1 << n for n in lanes if n not in strangers)
        meetings = self._of(address, words, warp)
        if not meetings.is_waiting:
            meetings.stopped(words[State.STOPPED + warp], 0)
        meetings.meet(mask, members, self._living(words, warp), what, line)

    def _living(self, words: ctypes.Array[ctypes.c_uint64], warp: int) -> int:
        left = words[State.THREADS] - LANES * warp
        there = (1 << min(left, LANES)) - 1
        return there & ~words[State.GONE + warp]

    def _of(self, address: int, words: ctypes.Array[ctypes.c_uint64], warp: int) -> Meetings:
        warps = self._meetings.setdefault(address, {})
        if warp not in warps:

            def tell(missed: Missed) -> None:
                self._tell(words, warp, missed.lane, missed.line, missed=missed)

            warps[warp] = Meetings(tell)
        return warps[warp]

    def _note_waiting(self, address: int, words: ctypes.Array[ctypes.c_uint64]) -> None:
        """Tell compiled code which warps have waiting lanes."""
        warps = self._meetings.get(address, {})
        for warp, each in warps.items():
            words[State.WAITING + warp] = each.is_waiting
        words[State.AWAITED] = any(each.is_waiting for each in warps.values())

    def _over(self, address: int) -> None:
        """End the meetings of a finished block."""
        for each in self._meetings.pop(address, {}).values():
            each.over()

    def _tell(
        self, words: ctypes.Array[ctypes.c_uint64], warp: int, lane: int, line: int, **what: object
    ) -> None:
        thread = LANES * (warp % MOST_WARPS) + lane
        told = Told(line, words[State.BLOCK] - 1, thread, **what)  # type: ignore[arg-type]
        self._told.setdefault(told.key, told)


def _lowest(mask: int) -> int:
    return (mask & -mask).bit_length() - 1 if mask else 0
