"""The tower. Why an op started when it did: the last thing that it waited for.

In this order: a predecessor, if it ended after the push; else the op's worker or stream, if that
was busy until then; else the thread that pushed the op.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cudasync.profile.record import WALL

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cudasync.profile.record import Dependency, Record

    Blockers = dict[Record, Record]

PUSHER, WORKER, STREAM, OP = "the pusher", "a worker", "a stream", "an op"
_FEW_US = 1.0


@dataclass(frozen=True, slots=True)
class Reason:
    """The last thing that `record` waited for, and the length of the wait.

    `waited_us` is the time from the op's push to the end of that thing, in microseconds of the wall
    clock. On a virtual clock, which has no pushes, it is the time for which the op's place was free
    while that thing ran. `what` is "an op", which
    `dependency` names; "a worker" or "a stream", which `blocker` occupied; or "the pusher".
    """

    record: Record
    what: str
    waited_us: float
    dependency: Dependency | None = None
    blocker: Record | None = None

    @property
    def idle(self) -> str:
        """Why the place of the op was idle before it."""
        if self.dependency is not None and self.dependency.is_reuse:
            return "waits for memory that is used again"
        if self.dependency is not None:
            return f"waits for {self.dependency.on.name}"
        return "waits for the pushing thread" if self.what == PUSHER else f"waits for {self.what}"

    @property
    def over_us(self) -> float | None:
        """The end of the wait, by the wall clock; None if unknown."""
        if self.dependency is not None:
            return _wall_end(self.dependency.on)
        return self.record.queued_us if self.blocker is None else _wall_end(self.blocker)

    def __str__(self) -> str:
        record = self.record
        head = f"{record.name} #{record.number}, pushed at {record.push_site},"
        if record.place is None:
            return f"{head} did not run, or its end was not seen"
        if self.dependency is not None:
            on = self.dependency.on
            by = "" if on.clock == record.clock else " by the wall clock"
            return (
                f"{head} waited {self.waited_us:.1f} us{by} for {on.name} #{on.number}:"
                f" {self.dependency.hazard} over {self.dependency.over},"
                f" pushed at {on.push_site}"
            )
        if self.blocker is not None:
            return (
                f"{head} waited {self.waited_us:.1f} us for {self.what}: {record.place} was busy"
                f" with {self.blocker.name} #{self.blocker.number}"
            )
        return (
            f"{head} waited for the pushing thread: all its dependencies had ended before its push"
        )


def reason_of(record: Record, blocked: Blockers) -> Reason:
    """The last thing that `record` waited for; `blocked` is the result of `blockers`."""
    last = _last_dependency(record)
    blocker = blocked.get(record)
    ended = None if last is None else _wall_end(last.on)
    if last is not None and ended is not None and ended > record.queued_us:
        waited_us = ended - record.queued_us
        later = None if blocker is None else blocker.gap_after_us(last.on)
        if blocker is not None and blocker is not last.on and later is not None and later > 0:
            # Another op took the place after the end of the last dependency.
            return _for_place(record, blocker)
        if _share_virtual_clock(record, last.on):
            began_us = last.on.start_us or 0.0
            if blocker is not None and blocker is not last.on:
                began_us = max(began_us, blocker.end_us or 0.0)
            waited_us = max(0.0, (last.on.end_us or 0.0) - began_us)
        return Reason(record, OP, waited_us, last)
    if blocker is not None:
        blocked_until = _wall_end(blocker)
        if blocked_until is not None and blocked_until > record.queued_us + _FEW_US:
            return _for_place(record, blocker)
    return Reason(record, PUSHER, 0.0)


def chain(record: Record, blocked: Blockers) -> list[Reason]:
    """The reason for `record`, the reason for the op that it names, and so on back to a push."""
    made: list[Reason] = []
    seen: set[Record] = set()
    at: Record | None = record
    while at is not None and at not in seen:
        seen.add(at)
        reason = reason_of(at, blocked)
        made.append(reason)
        at = reason.dependency.on if reason.dependency is not None else reason.blocker
    return made


def _for_place(record: Record, blocker: Record) -> Reason:
    if _share_virtual_clock(record, blocker):
        waited_us = blocker.duration_us
    else:
        waited_us = max(0.0, (_wall_end(blocker) or 0.0) - record.queued_us)
    return Reason(record, WORKER if record.device is None else STREAM, waited_us, None, blocker)


def _share_virtual_clock(record: Record, on: Record) -> bool:
    """Whether a wait of `record` for `on` has a length on their own clock.

    The wall clock also measured what the host did meanwhile: it compiled kernels, say.
    """
    return on.clock == record.clock != WALL and record.has_times and on.has_times


def _last_dependency(record: Record) -> Dependency | None:
    """The dependency that ended last; ops that did not run have no end."""
    timed = [each for each in record.before if each.on.found_us is not None]
    if not timed:
        return None
    same = [each for each in timed if each.on.clock == record.clock and record.has_times]
    if len(same) == len(timed) and record.clock != WALL:
        return max(timed, key=lambda each: each.on.end_us or 0.0)
    return max(timed, key=lambda each: _wall_end(each.on) or 0.0)


def _wall_end(record: Record) -> float | None:
    """The end by the wall clock; for another clock, the time when the end was noticed."""
    return record.end_us if record.clock == WALL and record.has_times else record.found_us


def blockers(records: Iterable[Record]) -> Blockers:
    """For each record the op that last occupied its stream or worker before it, if any."""
    places: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        if record.has_times and record.place is not None:
            places.setdefault((record.place, record.clock), []).append(record)
    found: Blockers = {}
    for group in places.values():
        group.sort(key=lambda each: (each.start_us or 0.0, each.number))
        last = group[0]
        for record in group[1:]:
            found[record] = last
            if (record.end_us or 0.0) > (last.end_us or 0.0):
                last = record
    return found
