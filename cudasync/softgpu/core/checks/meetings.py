"""Cellar. Meetings of lanes: which lanes of a warp a mask names, and which of them come.

Compiled code runs the lanes of a warp together and lets none of them wait. So once a lane names an
absent lane, each lane of the warp has a queue of the points that it reaches. A meeting is over when
all its named lanes have come to the same kind of meeting with the same mask. The line does not
matter (PTX ISA, bar.warp.sync and shfl.sync). Lanes that had ended when they were named need not
come. A meeting that is never over is reported, with what the missing lane does instead.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LANES: Final = 32
# Values of `_Step.what` that are no meetings.
_BARRIER, _END = -1, -2


class _Step(NamedTuple):
    """A point that a lane reaches: its kind, its mask, the living lanes of the mask, its line."""

    what: int
    members: int = 0
    named: int = 0
    line: int = 0


@dataclass(frozen=True, slots=True)
class Missed:
    """A lane waits at a line for a lane that does not come.

    The absent lane waits at `other_line`: in a meeting with the number `other` or, if `other` is
    None, at a barrier of the block. If `other_line` is 0, the absent lane has ended.
    """

    lane: int
    what: int
    members: int
    line: int
    absent: int
    other: int | None = None
    other_line: int = 0


class Meetings:
    """The lanes of one warp, while any of them waits."""

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
        """These lanes come to a meeting, each with its mask; `living` lanes have not ended."""
        for lane in _bits(lanes):
            # A lane that has run ahead to its end may still have to come to this meeting.
            here = living | sum(1 << n for n, queue in enumerate(self._queues) if queue)
            step = _Step(what, members[lane], members[lane] & here, line)
            self._queues[lane].append(step)
        self._settle()

    def opened(self) -> None:
        """The barrier at which lanes wait opens."""
        for queue in self._queues:
            if queue and queue[0].what == _BARRIER:
                queue.popleft()
        self._settle()

    def over(self) -> None:
        """The block is over: all waiting lanes have waited in vain."""
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
        """Let all lanes go on that can."""
        while any(self._look(lane) for lane in range(LANES) if self._waits(lane)):
            pass
        if not any(map(self._waits, range(LANES))):
            for queue in self._queues:
                # No lane waits in a meeting, so ended lanes leave their queues.
                while queue and queue[0].what == _END:
                    queue.popleft()

    def _look(self, lane: int) -> bool:
        """End a lane's meeting if it is complete or cannot be; True if it has ended."""
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
        """All lanes at this meeting go on."""
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
                    # The two lanes wait for each other, which is reported once.
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
