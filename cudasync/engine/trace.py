"""Floor 2. What happened: counters that are always kept, and a trace when asked for.

Host ops are timed by the wall clock, device ops by the device's own clock through events; the two
have different origins and, on the software GPU, different speeds. So times compare
within a device or among the workers, not across.
"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from cudasync.atomic import Tickets
from cudasync.driver import Event, Stream
from cudasync.engine.op import OpKind
from cudasync.errors import CudasyncError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cudasync.engine.events import EventPool
    from cudasync.engine.op import DeviceOp, Op


@dataclass(frozen=True, slots=True)
class Statistics:
    """Counts since the engine was made."""

    # Ops that were pushed; those that ended well on the host and on a device; the others.
    ops: int
    host_ops: int
    device_ops: int
    failed_ops: int
    streams_used: int
    events_created: int
    events_recorded: int
    # Event waits given to the driver, and dependencies that needed none: order within a stream,
    # something waited for before, or an op that had finished.
    waits: int
    waits_elided: int


class Tally(NamedTuple):
    """What streams count themselves: who issues there is alone, so plain integers will do."""

    streams_used: int
    events_recorded: int
    waits_elided: int


class Counters:
    """What any thread may count; `snapshot` is what the user sees."""

    __slots__ = (
        "device_ops",
        "events_created",
        "failed_ops",
        "past",
        "streams_used",
        "waits",
    )

    def __init__(self) -> None:
        self.device_ops = Tickets()
        self.failed_ops = Tickets()
        # Those of the serial engine.
        self.streams_used = Tickets()
        self.events_created = Tickets()
        self.waits = Tickets()
        # Of streams that are closed.
        self.past: list[Tally] = []

    def snapshot(self, host_ops: int, unfinished: int, streams: Iterable[Tally]) -> Statistics:
        """The counts now; workers count the host ops that they ran themselves, streams what was
        issued to them."""
        device_ops, failed_ops = self.device_ops.taken, self.failed_ops.taken
        tallies = [*self.past, *streams]
        return Statistics(
            ops=host_ops + device_ops + failed_ops + unfinished,
            host_ops=host_ops,
            device_ops=device_ops,
            failed_ops=failed_ops,
            streams_used=self.streams_used.taken + sum(each.streams_used for each in tallies),
            events_created=self.events_created.taken,
            events_recorded=sum(each.events_recorded for each in tallies),
            waits=self.waits.taken,
            waits_elided=sum(each.waits_elided for each in tallies),
        )


@dataclass(frozen=True, slots=True)
class TraceEntry:
    """One op that ran: where, and from when to when in microseconds of that place's clock.

    `kind` is "kernel", "copy", "memory" or "host"; `queued_us` is when it was pushed, by the wall
    clock.
    """

    name: str
    timeline: str
    kind: str
    start_us: float
    end_us: float
    queued_us: float


_KINDS = {
    OpKind.HOST: "host",
    OpKind.KERNEL: "kernel",
    OpKind.HTOD: "copy",
    OpKind.DTOH: "copy",
    OpKind.DTOD: "copy",
    OpKind.ALLOCATE: "memory",
    OpKind.FREE: "memory",
}


class Recorder:
    """Collects trace entries; one per engine that traces."""

    def __init__(self) -> None:
        self._began = time.perf_counter()
        # By op: two threads may both find that an op has ended.
        self._entries: dict[Op, TraceEntry] = {}
        self._origins: dict[int, Event] = {}
        self._starts: dict[Op, Event] = {}
        self._queued: dict[Op, float] = {}

    @property
    def entries(self) -> list[TraceEntry]:
        """In the order in which the ops were found to have ended."""
        return list(self._entries.values())

    def pushed(self, op: Op) -> None:
        self._queued[op] = self._now()

    def issuing(self, op: DeviceOp, stream: Stream, events: EventPool) -> None:
        """Mark on `stream` that `op` starts here; before its first command."""
        device = events.device
        if device.ordinal not in self._origins:
            # Times are taken as soon as an op is done, on whatever stream: the origin has to have
            # passed by then. A stream of its own, so that nothing can hold it up.
            clock = Stream(device)
            origin = clock.record(Event(device, timing=True))
            clock.synchronize()
            clock.close()
            self._origins.setdefault(device.ordinal, origin)
        start = events.take()
        stream.record(start)
        self._starts[op] = start

    def reached(self, op: DeviceOp) -> None:
        """Note a device op whose end event is complete."""
        start, point = self._starts.get(op), op._point
        if start is None or point is None or op in self._entries:
            return
        timeline, _, event, _ = point
        origin = self._origins[timeline.device.ordinal]
        # A trace is worth less than the op: where the device is lost, it has a hole.
        with suppress(CudasyncError):
            begin = start.elapsed_ms(origin) * 1e3
            end = event.elapsed_ms(origin) * 1e3
            queued = self._queued.pop(op, 0.0)
            self._entries.setdefault(
                op, TraceEntry(op.name, timeline.name, _KINDS[op.kind], begin, end, queued)
            )
        self._starts.pop(op, None)

    def ran(self, op: Op, worker: str, start: float) -> None:
        """Note a host op that began at `start` (time.perf_counter) and ends now."""
        queued = self._queued.pop(op, 0.0)
        begin = (start - self._began) * 1e6
        self._entries[op] = TraceEntry(op.name, worker, "host", begin, self._now(), queued)

    def dropped(self, op: Op) -> None:
        """Forget an op that did not run."""
        self._queued.pop(op, None)
        self._starts.pop(op, None)

    def _now(self) -> float:
        return (time.perf_counter() - self._began) * 1e6
