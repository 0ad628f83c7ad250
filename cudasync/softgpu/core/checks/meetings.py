"""Cellar. Lanes of a warp that wait for each other: who was named, and who came.

Compiled code runs lanes of a warp together and lets none of them wait. So of a warp in which some
lane names one that is not there, each lane has a queue of what it comes to. A meeting is over when
all lanes that it names have come to one of the same kind with the same mask, wherever that is (PTX
ISA, bar.warp.sync and shfl.sync); lanes that had ended when they were named need not come. What is
never over is told: what the lane that was waited for does instead.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LANES: Final = 32
# In the place of what lanes do together.
_BARRIER, _END = -1, -2


class _Step(NamedTuple):
    """What a lane comes to: `what` it is, whom it names (those who live at that), at which line."""

    what: int
    members: int = 0
    named: int = 0
    line: int = 0


@dataclass(frozen=True, slots=True)
class Missed:
    """A lane waits at a line for one that does not come.

    That one waits at `other_line` in a meeting (`other` is its number) or, if `other` is None, at a
    barrier of the block; with a line of 0 it has ended.
    """

    lane: int
    what: int
    members: int
    line: int
    absent: int
    other: int | None = None
    other_line: int = 0


class Meetings:
    """The lanes of one warp, from when one of them waits until none does."""

    def __init__(self, tell: Callable[[Missed], None]) -> None:
        self._tell = tell
        self._queues: list[deque[_Step]] = [deque() for _ in range(LANES)]

    @property
    def is_waiting(self) -> bool:
        return any(self._queues)

    def stopped(self, lanes: int, line: int) -> None:
        """These lanes come to a barrier of the block."""
        self._come(lanes, _Step(_BARRIER, line=line))

    def ended(self, lanes: int) -> None:
        """These lanes end."""
        self._come(lanes, _Step(_END))

    def meet(self, lanes: int, members: dict[int, int], living: int, what: int, line: int) -> None:
        """These lanes come to a meeting, each with its mask; `living` has who has not ended."""
        for lane in _bits(lanes):
            # Who has run ahead to its end may have to come here before that.
            here = living | sum(1 << n for n, queue in enumerate(self._queues) if queue)
            step = _Step(what, members[lane], members[lane] & here, line)
            self._queues[lane].append(step)
        self._settle()

    def opened(self) -> None:
        """The barrier that they have come to opens."""
        for queue in self._queues:
            if queue and queue[0].what == _BARRIER:
                queue.popleft()
        self._settle()

    def over(self) -> None:
        """The block is over: whoever waits has waited in vain."""
        while self.is_waiting:
            lane = next((n for n in range(LANES) if self._waits(n)), None)
            if lane is None:
                break
            self._give_up(lane)
            self._settle()

    def _come(self, lanes: int, step: _Step) -> None:
        for lane in _bits(lanes):
            self._queues[lane].append(step)
        self._settle()

    def _waits(self, lane: int) -> bool:
        return bool(self._queues[lane]) and self._queues[lane][0].what >= 0

    def _settle(self) -> None:
        """Let go on who can."""
        while any(self._look(lane) for lane in range(LANES) if self._waits(lane)):
            pass
        if not any(map(self._waits, range(LANES))):
            for queue in self._queues:
                # Nobody waits for a lane that stands at a barrier, or has ended.
                while queue and queue[0].what == _END:
                    queue.popleft()

    def _look(self, lane: int) -> bool:
        """Let this meeting be over if it is, or can not be; whether it is."""
        if not self._waits(lane):
            return False
        step = self._queues[lane][0]
        fronts = {n: self._queues[n][0] if self._queues[n] else None for n in _bits(step.named)}
        stuck = [n for n, each in fronts.items() if each is not None and each.what < 0]
        if stuck:
            self._miss(lane, stuck[0])
            self._leave(step)
            return True
        if all(each is not None and _is_same(each, step) for each in fronts.values()):
            self._leave(step)
            return True
        return False

    def _leave(self, step: _Step) -> None:
        """All who are at this meeting go on."""
        for queue in self._queues:
            if queue and _is_same(queue[0], step):
                queue.popleft()

    def _give_up(self, lane: int) -> None:
        step = self._queues[lane][0]
        for other in _bits(step.named):
            queue = self._queues[other]
            if not queue or not _is_same(queue[0], step):
                self._miss(lane, other)
                self._leave(step)
                if queue and queue[0].what >= 0:
                    # The two wait for each other: that is told once.
                    self._leave(queue[0])
                return
        self._leave(step)

    def _miss(self, lane: int, absent: int) -> None:
        step, queue = self._queues[lane][0], self._queues[absent]
        other, line = None, 0
        if queue and queue[0].what != _END:
            other = queue[0].what if queue[0].what >= 0 else None
            line = queue[0].line
        missed = Missed(lane, step.what, step.members, step.line, absent, other, line)
        self._tell(missed)


def _is_same(one: _Step, other: _Step) -> bool:
    return one.what == other.what and one.members == other.members


def _bits(mask: int) -> Iterator[int]:
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low
