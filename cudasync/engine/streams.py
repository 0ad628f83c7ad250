"""Floor 2. Which stream an op goes to: a small pool of timelines per device.

Copies in and out have a stream each, so that the copy engines work beside the kernels.
Allocations have one too: nothing else runs there, so a new array never waits behind a kernel. A
kernel goes where the op it depends on came last, since order within a stream costs nothing; else
to the least loaded one. A stream that another thread is issuing to is passed over; if all of
them are, one more is made.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from cudasync.atomic import offer
from cudasync.engine.events import EventPool
from cudasync.engine.op import DeviceOp, OpKind
from cudasync.engine.timeline import Timeline
from cudasync.engine.trace import Tally
from cudasync.errors import CudasyncError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cudasync.driver import Device
    from cudasync.engine.failure import Failure
    from cudasync.engine.op import Op
    from cudasync.engine.trace import Counters

# Read once: to look up a member of an Enum costs as much as a call.
_KERNEL, _DTOD, _FREE = OpKind.KERNEL, OpKind.DTOD, OpKind.FREE
_HTOD, _DTOH = OpKind.HTOD, OpKind.DTOH


class DeviceStreams:
    """The timelines and events of one device. The groups only grow, by one append each time."""

    def __init__(
        self, device: Device, token: object, *, streams: int, timing: bool, counters: Counters
    ) -> None:
        self.device = device
        # The life of the device's context that all of this belongs to.
        self.token = token
        self.events = EventPool(device, timing=timing, counters=counters)
        self.counters = counters
        self._name = f"device {device.ordinal}"
        self.compute: list[Timeline] = []
        self.urgent: list[Timeline] = []
        self.htod: list[Timeline] = []
        self.dtoh: list[Timeline] = []
        self.allocate: list[Timeline] = []
        self.free: list[Timeline] = []
        for i in range(streams):
            self.compute.append(self._timeline(self.compute, f"stream {i}"))
        for i in range(min(2, streams)):
            # CUDA's convention: the smaller number is the higher priority.
            self.urgent.append(self._timeline(self.urgent, f"urgent {i}", priority=-1))
        for group, what in (
            (self.htod, "HtoD"),
            (self.dtoh, "DtoH"),
            (self.allocate, "allocate"),
            (self.free, "free"),
        ):
            group.append(self._timeline(group, what))
        # A cell: what is to blame for a fault that left the context unusable. Nothing is issued
        # here any more.
        self.faults: list[Failure] = []

    @property
    def fault(self) -> Failure | None:
        """What is to blame for the loss of the device, None while it is whole."""
        return self.faults[0] if self.faults else None

    def blame(self, failure: Failure) -> Failure:
        """Note what is to blame, unless it is known; return what is known."""
        return offer(self.faults, failure)

    @property
    def is_gone(self) -> bool:
        """True once a reset of the device has ended these streams."""
        return self.token is not self.device.context.token

    @property
    def timelines(self) -> list[Timeline]:
        return [
            *self.compute,
            *self.urgent,
            *self.htod,
            *self.dtoh,
            *self.allocate,
            *self.free,
        ]

    def _timeline(self, group: list[Timeline], name: str, *, priority: int = 0) -> Timeline:
        return Timeline(self, f"{self._name} {name}", group, priority=priority)

    def group_of(self, kind: OpKind) -> list[Timeline]:
        """The timelines for ops of this kind, without a priority."""
        if kind is _KERNEL or kind is _DTOD:
            return self.compute
        if kind is _HTOD:
            return self.htod
        if kind is _DTOH:
            return self.dtoh
        return self.free if kind is _FREE else self.allocate

    def take(self, op: DeviceOp, before: Sequence[Op]) -> Timeline:
        """The timeline for `op`, whose predecessors are issued, taken for the caller."""
        kind = op.kind
        group = self.group_of(kind)
        if group is self.compute and op.priority > 0:
            group = self.urgent
        followable = self.compute if kind is _FREE else group
        if before and (followable is not group or len(group) > 1):
            followed = _tail_to_follow(before, followable)
            if followed is not None and followed.take():
                return followed
        least = group[0]
        if len(group) > 1:
            fewest = least.issued - least.finished
            for timeline in group:
                load = timeline.issued - timeline.finished
                if load < fewest:
                    least, fewest = timeline, load
        if least.take():
            return least
        for timeline in sorted(group, key=_load):
            if timeline.take():
                return timeline
        spare = self._timeline(group, f"spare {len(self.timelines)}", priority=group[0].priority)
        spare.take()
        group.append(spare)
        return spare

    def tally(self) -> Tally:
        """What its timelines count themselves."""
        timelines = self.timelines
        return Tally(
            streams_used=sum(timeline.issued > 0 for timeline in timelines),
            events_recorded=sum(timeline.issued for timeline in timelines),
            waits_elided=sum(timeline.elided for timeline in timelines),
        )

    def is_lost(self) -> bool:
        """True if the driver says of the device itself that its context is unusable."""
        for timeline in self.timelines:
            if timeline.has_stream:
                try:
                    timeline.stream.query()
                except CudasyncError:
                    return True
                return False
        return True

    def close(self) -> None:
        """Destroy the streams and events; a dead context can not be told to, and need not be."""
        self.counters.past.append(self.tally())
        for timeline in self.timelines:
            with suppress(CudasyncError):
                timeline.close()
        with suppress(CudasyncError):
            self.events.close()


def _tail_to_follow(before: Sequence[Op], group: list[Timeline]) -> Timeline | None:
    """The stream whose last op is the youngest predecessor that is the last of its stream."""
    best = None
    number = 0
    for op in before:
        if op.__class__ is DeviceOp:
            point = op._point
            if point is not None and op.number > number:
                timeline = point[0]
                if timeline.tail is op and timeline.group is group:
                    best, number = timeline, op.number
    return best


def _load(timeline: Timeline) -> int:
    return timeline.load
