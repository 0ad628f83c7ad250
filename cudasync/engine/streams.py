"""Floor 2. Which stream an op goes to: a small pool of timelines per device.

Copies in and out have a stream each, so that the copy engines work beside the kernels.
Allocations have one too: nothing else runs there, so a new array never waits behind a kernel. A
kernel goes where the op it depends on came last, since order within a stream costs nothing; else
to an idle stream; else to the least loaded one.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from cudasync.engine.events import EventPool
from cudasync.engine.op import OpKind
from cudasync.engine.timeline import Timeline
from cudasync.errors import CudasyncError

if TYPE_CHECKING:
    from cudasync.driver import Device
    from cudasync.engine.failure import Failure
    from cudasync.engine.op import Op
    from cudasync.engine.trace import Statistics


class DeviceStreams:
    """The timelines and events of one device. Everything here is under `plan.LOCK`."""

    def __init__(
        self, device: Device, *, streams: int, timing: bool, statistics: Statistics
    ) -> None:
        self.device = device
        self.events = EventPool(device, timing=timing, statistics=statistics)
        name = f"device {device.ordinal}"
        self.compute = [Timeline(device, f"{name} stream {i}") for i in range(streams)]
        # CUDA's convention: the smaller number is the higher priority.
        self.urgent = [
            Timeline(device, f"{name} urgent {i}", priority=-1) for i in range(min(2, streams))
        ]
        self.htod = Timeline(device, f"{name} HtoD")
        self.dtoh = Timeline(device, f"{name} DtoH")
        self.allocate = Timeline(device, f"{name} allocate")
        self.free = Timeline(device, f"{name} free")
        # Set by a fault that left the context unusable: nothing is issued here any more.
        self.fault: Failure | None = None

    @property
    def is_gone(self) -> bool:
        """True once a reset of the device has ended these streams."""
        return self.allocate.is_gone

    @property
    def timelines(self) -> list[Timeline]:
        return [*self.compute, *self.urgent, self.htod, self.dtoh, self.allocate, self.free]

    def choose(self, op: Op) -> Timeline:
        """The timeline for `op`, all of whose device predecessors are issued."""
        match op.kind:
            case OpKind.HTOD:
                return self.htod
            case OpKind.DTOH:
                return self.dtoh
            case OpKind.ALLOCATE:
                return self.allocate
        group = self.urgent if op.priority > 0 else self.compute
        followed = self._tail_to_follow(op, group)
        if followed is not None:
            return followed
        if op.kind is OpKind.FREE:
            return self.free
        return min(group, key=lambda timeline: timeline.load)

    def _tail_to_follow(self, op: Op, group: list[Timeline]) -> Timeline | None:
        """The stream whose last op is the youngest predecessor that is the last of its stream."""
        best: Op | None = None
        for before in op._predecessors:
            timeline = before._timeline
            if timeline is None or timeline not in group or timeline.tail is not before:
                continue
            if best is None or before.number > best.number:
                best = before
        return best._timeline if best is not None else None

    def close(self) -> None:
        """Destroy the streams and events; a dead context can not be told to, and need not be."""
        for timeline in self.timelines:
            with suppress(CudasyncError):
                timeline.close()
        with suppress(CudasyncError):
            self.events.close()
