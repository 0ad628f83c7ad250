"""Floor 2. The streams of a device: small groups of timelines, and the choice among them.

Copies in and copies out have their own streams, so that the copy engines work beside the kernels;
so have ops of each priority. Allocations have one stream, where nothing else runs, so a new array
never waits behind a kernel. Waits for foreign streams have streams that only their successors
follow. An op follows a predecessor that is the last op of its stream, since order within a stream
costs nothing; else `stream_group` chooses. A stream that another thread holds is skipped; if all
streams are held, one more is made.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from cudasync.atomic import offer
from cudasync.driver.device import highest_priority
from cudasync.driver.streams.open_captures import Relaxed
from cudasync.engine.device.events import EventPool
from cudasync.engine.device.stream_group import StreamGroup, may_be_held
from cudasync.engine.op import OpKind
from cudasync.engine.op_classes import DEVICE_OPS, DeviceOp
from cudasync.engine.trace import Tally
from cudasync.errors import CudasyncError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cudasync.driver import Device
    from cudasync.engine.device.timeline import Timeline
    from cudasync.engine.failure import Failure
    from cudasync.engine.op import Op
    from cudasync.engine.trace import Counters

# Read once: a look-up of an Enum member costs as much as a call.
_KERNEL, _DTOD, _FREE = OpKind.KERNEL, OpKind.DTOD, OpKind.FREE
_ALLOCATE = OpKind.ALLOCATE
_HTOD, _DTOH, _WAIT = OpKind.HTOD, OpKind.DTOH, OpKind.WAIT
# The most streams for waits for foreign streams on one device; further waits share them.
MOST_AWAITED = 8


class DeviceStreams:
    """The timelines and events of one device."""

    def __init__(
        self,
        device: Device,
        token: object,
        *,
        streams: int | None,
        timing: bool,
        counters: Counters,
    ) -> None:
        self.device = device
        # The `Life` of the device's context that the streams and events belong to.
        self.token = token
        self.events = EventPool(device, timing=timing, counters=counters)
        self.counters = counters
        # All timelines in order of their creation: only grows, by one append each time.
        self.created: list[Timeline] = []
        name = f"device {device.ordinal}"
        self.compute = StreamGroup(self, f"{name} stream", most=streams, is_parallel=True)
        self.awaiting = StreamGroup(
            self, f"{name} wait", most=MOST_AWAITED, is_parallel=True, followers=self.compute
        )
        self.htod = StreamGroup(self, f"{name} HtoD", most=streams)
        self.dtoh = StreamGroup(self, f"{name} DtoH", most=streams)
        self.allocate = StreamGroup(self, f"{name} allocate", most=1)
        self.free = StreamGroup(self, f"{name} free", most=streams)
        # For copies in which the driver waits: their issuer has the stream to itself.
        self.pageable = StreamGroup(self, f"{name} pageable", most=1)
        self._groups = (
            self.compute,
            self.awaiting,
            self.htod,
            self.dtoh,
            self.allocate,
            self.free,
            self.pageable,
        )
        # The highest priority that the device has, once it was asked.
        self._highest: int | None = None
        # A cell: the failure to blame for a fault that left the context unusable. After it nothing
        # is issued here.
        self.faults: list[Failure] = []
        # Things that a launch must not overlook: ops in doubt, failures that came through them, and
        # the fault, if any. Usually empty, and then launches take the short way.
        self.concerns: dict[DeviceOp | Failure, None] = {}

    @property
    def fault(self) -> Failure | None:
        """The failure to blame for the loss of the device; None while it works."""
        return self.faults[0] if self.faults else None

    def blame(self, failure: Failure) -> Failure:
        """Note the failure to blame, unless one is known; return the known one."""
        known = offer(self.faults, failure)
        self.concerns[known] = None
        return known

    def forget_failures(self) -> None:
        """Drop cleared failures that came from other devices."""
        for each in list(self.concerns):
            if not isinstance(each, DeviceOp) and each.cleared:
                self.concerns.pop(each, None)

    @property
    def is_gone(self) -> bool:
        """True once a reset of the device has ended these streams."""
        return self.token is not self.device.context.token

    @property
    def timelines(self) -> list[Timeline]:
        """All timelines, by the kind of their work."""
        return [timeline for group in self._groups for timeline in group.all()]

    def clamped(self, priority: int) -> int:
        """The priority within the device's range: 0, or larger for work that goes first."""
        if self._highest is None:
            self._highest = highest_priority(self.device)
        return max(0, min(priority, self._highest))

    def group_of(self, kind: OpKind) -> StreamGroup:
        """The timelines for ops of this kind, without a priority."""
        if kind is _KERNEL or kind is _DTOD:
            return self.compute
        if kind is _HTOD:
            return self.htod
        if kind is _DTOH:
            return self.dtoh
        if kind is _WAIT:
            return self.awaiting
        return self.free if kind is _FREE else self.allocate

    def take(self, op: DeviceOp, before: Sequence[Op]) -> Timeline:
        """The timeline for `op`, whose predecessors are issued, taken for the caller."""
        kind = op.kind
        group = self.pageable if op._is_blocking else self.group_of(kind)
        if op.priority > 0:
            group = group.at(op.priority)
        if before:
            followed = _tail_to_follow(before, self.compute if kind is _FREE else group)
            if followed is not None and followed.take(op):
                return followed
        chosen = group.choose(before)
        if not chosen.take(op):
            for chosen in sorted(group.timelines, key=_load):
                if chosen.take(op):
                    break
            else:
                chosen = group.fresh()
                chosen.take(op)
                return group.add(chosen)
        if kind is not _FREE and kind is not _ALLOCATE and chosen.delays(before):
            self.counters.shared.next()
        return chosen

    @property
    def taken(self) -> list[Timeline]:
        """The timelines that a thread holds now."""
        return [timeline for timeline in self.timelines if timeline.holder]

    def tally(self) -> Tally:
        """The counts of its timelines."""
        timelines = self.timelines
        return Tally(
            streams_used=sum(timeline.issued > 0 for timeline in timelines),
            events_recorded=sum(timeline.issued for timeline in timelines),
            waits_elided=sum(timeline.elided for timeline in timelines),
        )

    def is_lost(self) -> bool:
        """True if the driver says that the device's context is unusable."""
        for timeline in self.timelines:
            if timeline.has_stream:
                try:
                    with Relaxed():
                        timeline.stream.query()
                except CudasyncError:
                    return True
                return False
        return True

    def close(self) -> None:
        """Destroy the streams and events; a dead context refuses that, and does not need it."""
        self.counters.past.append(self.tally())
        for timeline in self.timelines:
            with suppress(CudasyncError):
                timeline.close()
        with suppress(CudasyncError):
            self.events.close()


def _tail_to_follow(before: Sequence[Op], group: StreamGroup) -> Timeline | None:
    """The stream of the youngest predecessor that is the last op of its stream.

    An op that comes after work at risk does not follow to a stream without risk.
    """
    best = None
    number = 0
    is_for_risk = any(map(may_be_held, before))
    for op in before:
        if op.__class__ in DEVICE_OPS:
            point = op._point
            if point is not None and op.number > number:
                timeline = point[0]
                if timeline.tail is op and timeline.followers is group:
                    if is_for_risk and not timeline.is_at_risk:
                        continue
                    best, number = timeline, op.number
    return best


def _load(timeline: Timeline) -> int:
    return timeline.load
