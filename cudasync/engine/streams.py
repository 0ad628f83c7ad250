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
from cudasync.engine.op import OpKind
from cudasync.engine.timeline import Timeline
from cudasync.errors import CudasyncError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cudasync.driver import Device
    from cudasync.engine.failure import Failure
    from cudasync.engine.op import DeviceOp, Op
    from cudasync.engine.trace import Counters


class DeviceStreams:
    """The timelines and events of one device. The groups only grow, by one append each time."""

    def __init__(
        self, device: Device, token: object, *, streams: int, timing: bool, counters: Counters
    ) -> None:
        self.device = device
        # The life of the device's context that all of this belongs to.
        self.token = token
        self.events = EventPool(device, timing=timing, counters=counters)
        name = self._name = f"device {device.ordinal}"
        self.compute = [Timeline(self, f"{name} stream {i}") for i in range(streams)]
        # CUDA's convention: the smaller number is the higher priority.
        self.urgent = [
            Timeline(self, f"{name} urgent {i}", priority=-1) for i in range(min(2, streams))
        ]
        self.htod = [Timeline(self, f"{name} HtoD")]
        self.dtoh = [Timeline(self, f"{name} DtoH")]
        self.allocate = [Timeline(self, f"{name} allocate")]
        self.free = [Timeline(self, f"{name} free")]
        # A cell: what is to blame for a fault that left the context unusable. Nothing is issued
        # here any more.
        self._faults: list[Failure] = []

    @property
    def fault(self) -> Failure | None:
        """What is to blame for the loss of the device, None while it is whole."""
        return self._faults[0] if self._faults else None

    def blame(self, failure: Failure) -> Failure:
        """Note what is to blame, unless it is known; return what is known."""
        return offer(self._faults, failure)

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

    def take(self, op: DeviceOp, before: Sequence[Op]) -> Timeline:
        """The timeline for `op`, whose predecessors are issued, taken for the caller."""
        match op.kind:
            case OpKind.HTOD:
                group = self.htod
            case OpKind.DTOH:
                group = self.dtoh
            case OpKind.ALLOCATE:
                group = self.allocate
            case _:
                group = self.urgent if op.priority > 0 else self.compute
                followed = _tail_to_follow(before, group)
                if followed is not None and followed.take():
                    return followed
                if op.kind is OpKind.FREE:
                    group = self.free
        least = group[0] if len(group) == 1 else min(group, key=_load)
        if least.take():
            return least
        for timeline in sorted(group, key=_load):
            if timeline.take():
                return timeline
        spare = Timeline(
            self, f"{self._name} spare {len(self.timelines)}", priority=group[0].priority
        )
        spare.take()
        group.append(spare)
        return spare

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
        point = getattr(op, "_point", None)
        if point is None or op.number < number:
            continue
        timeline = point.timeline
        if timeline.tail is op and timeline in group:
            best, number = timeline, op.number
    return best


def _load(timeline: Timeline) -> int:
    return timeline.load
