"""Floor 2. The streams for one kind of work at one priority, made at first need, up to a limit.

An op that follows no predecessor gets an idle stream. If there is none, the op shares a stream, and
is behind unrelated work. Such work is usually over soon, unless it may be *held up*: users'
functions, which may enqueue anything, waits for foreign streams, and work that waits for these. A
stream is at risk as long as such an op is on it.

So an op goes behind work at risk only if all streams are at risk, and the driver says that each of
them still has work. Ops that come after work at risk leave one stream without risk to other ops.

Several threads may choose the same stream at once; the issuing thread takes it afterwards.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from cudasync.engine.device.timeline import Timeline
from cudasync.engine.op_classes import DeviceOp

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cudasync.engine.device.streams import DeviceStreams
    from cudasync.engine.op import Op

# If the driver said that all streams have work, it is asked again once some work is known to be
# over, or after this many choices.
CHOICES_PER_QUESTION = 32
# More than the load of any stream.
_MOST = sys.maxsize


class StreamGroup:
    """Up to `most` streams. `is_parallel` if the device can run several such ops at once; without
    it a new stream is made only if all are at risk."""

    def __init__(
        self,
        streams: DeviceStreams,
        name: str,
        *,
        most: int,
        priority: int = 0,
        is_parallel: bool = False,
        followers: StreamGroup | None = None,
    ) -> None:
        self.streams = streams
        self.name = name
        self.most = most
        self.priority = priority
        self.is_parallel = is_parallel
        # Ops of this group may follow the last op of a stream here.
        self.followers = self if followers is None else followers
        # Only grows, by one append each time.
        self.timelines: list[Timeline] = []
        # By priority.
        self._urgent: dict[int, StreamGroup] = {}
        # The finished count when all streams had work, and for how many choices it is trusted.
        self._seen = -1
        self._patience = 0

    def at(self, priority: int) -> StreamGroup:
        """The group for the same work at a priority that the device has: larger goes first."""
        level = self.streams.clamped(priority)
        if level <= self.priority:
            return self
        group = self._urgent.get(level)
        if group is None:
            name = f"{self.name} priority {level}"
            made = StreamGroup(
                self.streams, name, most=self.most, priority=level, is_parallel=self.is_parallel
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
        least, fewest = None, _MOST
        for timeline in self.timelines:
            # `is_free`, `is_at_risk` and `load`, inlined: each op that follows none needs them.
            over, reached = timeline.finished, timeline.reached
            if reached > over:
                over = reached
            load = timeline.issued - over
            if timeline.holder:
                load += 1
            if load <= 0:
                return timeline
            if load < fewest and timeline.risk <= over:
                least, fewest = timeline, load
        return self._one_more_or(least)

    def _choose_for_risk(self, before: Sequence[Op]) -> Timeline:
        """`choose` for an op that comes after work that may be held up."""
        calm = [timeline for timeline in self.timelines if not timeline.is_at_risk]
        if len(calm) + self.most - len(self.timelines) < 2:
            # Leave the last stream without risk to ops that do not come after this work.
            found = self._behind(before)
            if found is not None:
                return found
        least = min(calm, key=_load, default=None)
        if least is not None and least.is_free:
            return least
        return self._one_more_or(least)

    def _one_more_or(self, least: Timeline | None) -> Timeline:
        """A new stream if the limit allows it; else `least`, the least loaded stream without
        risk."""
        if len(self.timelines) < self.most and (self.is_parallel or least is None):
            return self.add(self.fresh())
        if least is None:
            least = self._asked()
        return min(self.timelines, key=_load) if least is None else least

    def fresh(self) -> Timeline:
        """One more stream, not yet visible to other threads."""
        number = len(self.timelines)
        name = f"{self.name} {number}" if number or self.is_parallel else self.name
        return Timeline(self.streams, name, self)

    def add(self, fresh: Timeline) -> Timeline:
        """Make a stream visible to other threads."""
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
    point = op._point if op.__class__ is DeviceOp else None
    return point is not None and point[0].is_at_risk


def _load(timeline: Timeline) -> int:
    return timeline.load
