"""Floor 2. The streams for one kind of work at one priority, made at first need, up to a limit.

An op that follows no predecessor gets an idle stream, or a new one while more are allowed. A group
without a given number begins with `FIRST`. If all of these have work, the driver is asked about one
of them. If it has work, twice as many are allowed, up to `MOST`. If it is idle, kernels end as fast
as they are launched, and more streams would be of no use: the op gets that one, and some more ops
share before the next question.

An op that shares a stream is behind unrelated work. Such work is usually over soon, unless it may
be *held up*: users' functions, which may enqueue anything, waits for foreign streams, and work that
waits for these. A stream is at risk as long as such an op is on it.

So an op goes behind work at risk only if all streams are at risk, and the driver says that each of
them still has work. Ops that come after work at risk leave one stream without risk to other ops.

Several threads may choose the same stream at once; the issuing thread takes it afterwards.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from cudasync.engine.device.timeline import Timeline
from cudasync.engine.op_classes import DEVICE_OPS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cudasync.engine.device.streams import DeviceStreams
    from cudasync.engine.op import Op

# Streams that are made without a question, and the largest number. A device has at most 32 hardware
# queues (`CUDA_DEVICE_MAX_CONNECTIONS`).
FIRST, MOST = 4, 32
# If the driver said that all streams have work, it is asked again once some work is known to be
# over, or after this many choices. After this many choices it is also asked whether more streams
# are of use.
CHOICES_PER_QUESTION = 32
# An op shares with the least loaded of so many streams, which take turns.
COMPARED = 4
# More than the load of any stream.
_ANY = sys.maxsize


class StreamGroup:
    """Up to `most` streams; None: as many as are of use. `is_parallel` if the device can run
    several such ops at once; without it a new stream is made only if all are at risk."""

    def __init__(
        self,
        streams: DeviceStreams,
        name: str,
        *,
        most: int | None,
        priority: int = 0,
        is_parallel: bool = False,
        followers: StreamGroup | None = None,
    ) -> None:
        self.streams = streams
        self.name = name
        self._given = most
        self.most = MOST if most is None else most
        # How many are allowed now: only grows, up to `most`.
        self.allowed = FIRST if most is None else most
        self.priority = priority
        self.is_parallel = is_parallel
        # Ops of this group may follow the last op of a stream here.
        self.followers = self if followers is None else followers
        # Only grows, by one append each time.
        self.timelines: list[Timeline] = []
        # By priority.
        self._urgent: dict[int, StreamGroup] = {}
        # Replaced after each end of ops here, so that an earlier `_busy` is valid no more.
        self.news: object = None
        # The news when the first so many streams had work. Streams get idle only with news, except
        # one whose holder issues nothing after all: that is the least loaded then.
        self._busy: tuple[object, int] = (self, 0)
        # The first of the streams whose load is compared next.
        self._turn = 0
        # The finished count when all streams had work, and for how many choices it is trusted.
        self._seen = -1
        self._patience = 0
        # For how many choices the last answer is trusted that more streams are of no use.
        self._contentment = 0

    def at(self, priority: int) -> StreamGroup:
        """The group for the same work at a priority that the device has: larger goes first."""
        level = self.streams.clamped(priority)
        if level <= self.priority:
            return self
        group = self._urgent.get(level)
        if group is None:
            name = f"{self.name} priority {level}"
            made = StreamGroup(
                self.streams,
                name,
                most=self._given,
                priority=level,
                is_parallel=self.is_parallel,
            )
            group = self._urgent.setdefault(level, made)
        return group

    def all(self) -> list[Timeline]:
        """The streams of all priorities."""
        return [*self.timelines, *(t for each in list(self._urgent.values()) for t in each.all())]

    def choose(self, before: Sequence[Op] = ()) -> Timeline:
        """The stream for an op that comes after `before` but follows none of these."""
        if before and any(map(may_be_held, before)):
            return self._choose_for_risk(before)
        # Read before the streams: whatever ends later replaces it.
        news = self.news
        timelines = self.timelines
        known, busy = self._busy
        if known is news:
            timelines = timelines[busy:]
        for timeline in timelines:
            # `is_free`, inlined: each op that follows none needs it.
            if (
                timeline.finished >= timeline.issued or timeline.reached >= timeline.issued
            ) and not timeline.holder:
                if timeline.place:
                    self._busy = news, timeline.place
                return timeline
        return self._one_more_or_shared(news)

    def _one_more_or_shared(self, news: object) -> Timeline:
        """A new stream, if it is allowed and of use; else the least loaded stream without risk: of
        a few that take turns, or else of all."""
        timelines = self.timelines
        count = len(timelines)
        self._busy = news, count
        if count < self.most:
            more = self._one_more(count)
            if more is not None:
                return more
        if count > COMPARED:
            turn = self._turn
            timelines = timelines[turn : turn + COMPARED]
            turn += COMPARED
            self._turn = turn if turn < count else 0
        least, fewest = None, _ANY
        for timeline in timelines:
            # `is_at_risk` and `load`, inlined, without the last answer of the driver.
            over = timeline.finished
            load = timeline.issued - over
            if load < fewest and timeline.risk <= over:
                least, fewest = timeline, load
        return self._without_risk() if least is None else least

    def _one_more(self, count: int) -> Timeline | None:
        """A new stream beside `count`, which have work as far as is known; None if it would be of
        no use.

        Beyond the allowed number, ask the driver about one stream. If it has work, twice as many
        are allowed. If it is idle, it is returned, and the answer is trusted for some choices."""
        if not self.is_parallel:
            return None
        if count >= self.allowed:
            if self._contentment > 0:
                self._contentment -= 1
                return None
            # Of the streams that were allowed last, the one that got work first.
            asked = self.timelines[count // 2 if count > FIRST else 0]
            if asked.ask():
                self._contentment = CHOICES_PER_QUESTION
                return asked
            self.allowed = min(2 * self.allowed, self.most)
        return self.add(self.fresh())

    def _without_risk(self) -> Timeline:
        """The least loaded stream without risk; if all are at risk, a new one, or one that the
        driver calls idle, or else the least loaded."""
        calm = [timeline for timeline in self.timelines if not timeline.is_at_risk]
        if calm:
            return min(calm, key=_load)
        if len(self.timelines) < self.most:
            return self.add(self.fresh())
        return self._asked() or min(self.timelines, key=_load)

    def _choose_for_risk(self, before: Sequence[Op]) -> Timeline:
        """`choose` for an op that comes after work that may be held up."""
        calm = [timeline for timeline in self.timelines if not timeline.is_at_risk]
        left = self.allowed - len(self.timelines)
        if len(calm) + left < 2:
            # Leave the last stream without risk to ops that do not come after this work.
            found = self._behind(before)
            if found is not None:
                return found
        least = min(calm, key=_load, default=None)
        if least is not None and (least.is_free or not self.is_parallel or left <= 0):
            return least
        return self.add(self.fresh()) if left > 0 else self._without_risk()

    def fresh(self) -> Timeline:
        """One more stream, not yet visible to other threads."""
        number = len(self.timelines)
        name = f"{self.name} {number}" if number or self.is_parallel else self.name
        return Timeline(self.streams, name, self, number)

    def add(self, fresh: Timeline) -> Timeline:
        """Make a stream visible to other threads."""
        self.streams.created.append(fresh)
        self.timelines.append(fresh)
        return fresh

    def _behind(self, before: Sequence[Op]) -> Timeline | None:
        """A stream at risk, if there is one; preferably one that is behind `before`."""
        risky = [timeline for timeline in self.timelines if timeline.is_at_risk]
        points = [each._point for each in before if may_be_held(each)]
        for timeline in risky:
            if all(point is None or timeline.is_behind(point[0], point[1]) for point in points):
                return timeline
        return min(risky, key=_load, default=None)

    def _asked(self) -> Timeline | None:
        """An idle stream, by a query of the driver; queries are rare after the driver said that
        all streams have work."""
        seen = sum([timeline.finished for timeline in self.timelines])
        if self._patience > 0 and seen == self._seen:
            self._patience -= 1
            return None
        for timeline in self.timelines:
            if timeline.ask():
                return timeline
        self._seen, self._patience = seen, CHOICES_PER_QUESTION
        return None


def may_be_held(op: Op) -> bool:
    """True if `op` is on a stream and may be held up there."""
    point = op._point if op.__class__ in DEVICE_OPS else None
    return point is not None and point[0].is_at_risk


def _load(timeline: Timeline) -> int:
    return timeline.load
