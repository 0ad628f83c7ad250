"""Floor 2. What happened: counters that are always kept, and a trace when asked for.

Host ops are timed by the wall clock, device ops by the device's own clock through events; the two
have different origins and, on the software GPU, different speeds. So times compare
within a device or among the workers, not across.
"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cudasync.driver import Event, Stream
from cudasync.engine import plan
from cudasync.engine.op import OpKind
from cudasync.errors import CudasyncError

if TYPE_CHECKING:
    from cudasync.driver import Device
    from cudasync.engine.events import EventPool, PooledEvent
    from cudasync.engine.op import Op
    from cudasync.engine.timeline import Timeline


@dataclass(slots=True)
class Statistics:
    """Counts since the engine was made."""

    ops: int = 0
    host_ops: int = 0
    device_ops: int = 0
    failed_ops: int = 0
    streams_used: int = 0
    events_created: int = 0
    events_recorded: int = 0
    # Event waits given to the driver, and dependencies that needed none: order within a stream,
    # something waited for before, or an op that had finished.
    waits: int = 0
    waits_elided: int = 0


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


@dataclass(slots=True)
class Recorder:
    """Collects trace entries; one per engine that traces."""

    entries: list[TraceEntry] = field(default_factory=list)
    _began: float = field(default_factory=time.perf_counter)
    _origins: dict[int, Event] = field(default_factory=dict)
    _starts: dict[Op, PooledEvent] = field(default_factory=dict)
    _queued: dict[Op, float] = field(default_factory=dict)

    def pushed(self, op: Op) -> None:
        self._queued[op] = self._now()

    def issuing(self, op: Op, stream: Stream, events: EventPool) -> None:
        """Mark on `stream` that `op` starts here; before its first command."""
        device = events.device
        if device.ordinal not in self._origins:
            # Times are taken as soon as an op is done, on whatever stream: the origin has to have
            # passed by then. A stream of its own, so that nothing can hold it up.
            clock = Stream(device)
            self._origins[device.ordinal] = clock.record(Event(device, timing=True))
            clock.synchronize()
            clock.close()
        start = events.take()
        stream.record(start.event)
        self._starts[op] = start

    def reached(self, op: Op, timeline: Timeline, device: Device) -> None:
        """Note a device op whose end event is complete."""
        start = self._starts.pop(op, None)
        queued = self._queued.pop(op, 0.0)
        if start is None or op._event is None:
            return
        origin = self._origins[device.ordinal]
        # A trace is worth less than the op: where the device is lost, it has a hole.
        with suppress(CudasyncError):
            begin = start.event.elapsed_ms(origin) * 1e3
            end = op._event.event.elapsed_ms(origin) * 1e3
            place, kind = timeline.name, _KINDS[op.kind]
            self.entries.append(TraceEntry(op.name, place, kind, begin, end, queued))
        with plan.LOCK:
            start.unpin()

    def ran(self, op: Op, worker: str, start: float) -> None:
        """Note a host op that began at `start` (time.perf_counter) and ends now."""
        queued = self._queued.pop(op, 0.0)
        begin = (start - self._began) * 1e6
        self.entries.append(TraceEntry(op.name, worker, "host", begin, self._now(), queued))

    def dropped(self, op: Op) -> None:
        """Forget an op that did not run."""
        self._queued.pop(op, None)
        start = self._starts.pop(op, None)
        if start is not None:
            with plan.LOCK:
                start.unpin()

    def _now(self) -> float:
        return (time.perf_counter() - self._began) * 1e6
