"""Floor 2. The counters of an engine, which are always kept, and its trace, on request.

The wall clock times host ops; the device's clock times device ops, through events. The clocks have
different origins and, on the software GPU, different speeds. So times compare within a device or
among the workers, not across.
"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from cudasync.atomic import Tickets
from cudasync.driver import Event, Stream
from cudasync.engine.op import OpKind
from cudasync.engine.op_classes import DeviceOp
from cudasync.errors import CudasyncError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cudasync.engine.device.events import EventPool, RingEvent
    from cudasync.engine.hazards.interval_map import Region
    from cudasync.engine.op import Op


@dataclass(frozen=True, slots=True)
class Statistics:
    """Counts since the engine was made, as of the call of `Engine.statistics`."""

    # Pushed ops; ops that ended without failure on the host and on a device; failed ops.
    ops: int
    host_ops: int
    device_ops: int
    failed_ops: int
    streams_used: int
    events_created: int
    events_recorded: int
    # Event waits given to the driver, and dependencies that needed no wait: by the order within a
    # stream, by an earlier wait, or because the op had finished.
    waits: int
    waits_elided: int
    # Device ops that were put behind unrelated work, since no stream was known to be free.
    streams_shared: int
    # Ops pushed as batches by `push_many`, and the steps in them.
    batches: int
    steps: int
    # Replay: runs of repeated launches, each one op, the launches in them, and the runs that were
    # issued as one graph of the driver.
    runs: int
    matched: int
    graphs: int
    # Launches where another one was expected: of another kernel, shape or line; on other memory;
    # with other numbers.
    missed_launches: int
    missed_memory: int
    missed_numbers: int


class Tally(NamedTuple):
    """Counts of a stream: only its holder writes them, so plain integers suffice."""

    streams_used: int
    events_recorded: int
    waits_elided: int


class BySize(dict[int, Tickets]):
    """The number of batches of each size; a reader adds the counts up."""

    def __missing__(self, size: int) -> Tickets:
        return self.setdefault(size, Tickets())


class Counters:
    """Counters that any thread may increment; `snapshot` is the user's view."""

    __slots__ = (
        "batches",
        "device_ops",
        "events_created",
        "failed_ops",
        "graphs",
        "missed_launches",
        "missed_memory",
        "missed_numbers",
        "past",
        "runs",
        "shared",
        "streams_used",
        "waits",
    )

    def __init__(self) -> None:
        self.device_ops = Tickets()
        self.failed_ops = Tickets()
        # Streams of the serial engine.
        self.streams_used = Tickets()
        self.events_created = Tickets()
        self.waits = Tickets()
        self.shared = Tickets()
        self.batches = BySize()
        # Runs of repeated launches, by their number: launched call by call, and as graphs.
        self.runs = BySize()
        self.graphs = BySize()
        self.missed_launches = Tickets()
        self.missed_memory = Tickets()
        self.missed_numbers = Tickets()
        # Tallies of closed streams.
        self.past: list[Tally] = []

    def snapshot(self, host_ops: int, unfinished: int, streams: Iterable[Tally]) -> Statistics:
        """The counts now; workers count the host ops that they ran, and streams the ops issued to
        them."""
        device_ops, failed_ops = self.device_ops.taken, self.failed_ops.taken
        tallies = [*self.past, *streams]
        batches = _taken(self.batches)
        runs, graphs = _taken(self.runs), _taken(self.graphs)
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
            streams_shared=self.shared.taken,
            batches=sum(batches.values()),
            steps=sum(size * count for size, count in batches.items()),
            runs=sum(runs.values()) + sum(graphs.values()),
            matched=sum(n * count for each in (runs, graphs) for n, count in each.items()),
            graphs=sum(graphs.values()),
            missed_launches=self.missed_launches.taken,
            missed_memory=self.missed_memory.taken,
            missed_numbers=self.missed_numbers.taken,
        )


def _taken(by_size: BySize) -> dict[int, int]:
    """The number of things of each size, as of now."""
    return {size: by_size[size].taken for size in list(by_size)}


@dataclass(frozen=True, slots=True)
class TraceEntry:
    """One op that ran: its place, and its start and end in microseconds of that place's clock.

    `kind` is "kernel", "copy", "memory" or "host"; `queued_us` is the time of its push, by the wall
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
    OpKind.WAIT: "kernel",
    OpKind.ALLOCATE: "memory",
    OpKind.FREE: "memory",
}


class Recorder:
    """Collects trace entries; one per engine that traces."""

    # Options for a profile: see `graph.parts`.
    times_functions = times_nodes = False
    # A host op that runs without a plan leaves no trace.
    needs_plans = True

    def __init__(self) -> None:
        self._began = time.perf_counter()
        # Keyed by op: two threads may both find that an op has ended.
        self._entries: dict[Op, TraceEntry] = {}
        self._origins: dict[int, Event] = {}
        self._starts: dict[Op, RingEvent] = {}
        self._queued: dict[Op, float] = {}

    @property
    def entries(self) -> list[TraceEntry]:
        """The entries in order of completion, by the clocks: see `_in_order`."""
        return _in_order([(op, self._entries[op]) for op in list(self._entries)])

    def pushed(self, op: Op) -> None:
        self._queued[op] = self._now()

    def issuing(self, op: DeviceOp, stream: Stream, events: EventPool) -> None:
        """Mark the start of `op` on `stream`, before its first command."""
        device = events.device
        if device.ordinal not in self._origins:
            # Times are read as soon as an op is done, on any stream, so the origin must have passed
            # by then. It has its own stream, so that nothing can hold it up.
            clock = Stream(device)
            origin = clock.record(Event(device, timing=True))
            clock.synchronize()
            clock.close()
            self._origins.setdefault(device.ordinal, origin)
        start = events.take()
        stream.record(start)
        self._starts[op] = start

    def reached(self, op: DeviceOp) -> None:
        """Note a device op after its end event is complete."""
        start, point = self._starts.get(op), op._point
        if start is None or point is None or op in self._entries:
            return
        timeline, _, event, _ = point
        origin = self._origins[timeline.device.ordinal]
        # A trace must not fail the op: after a device loss, the trace has a hole.
        with suppress(CudasyncError):
            begin = start.elapsed_ms(origin) * 1e3
            end = event.elapsed_ms(origin) * 1e3
            queued = self._queued.pop(op, 0.0)
            self._entries.setdefault(
                op, TraceEntry(op.name, timeline.name, _KINDS[op.kind], begin, end, queued)
            )
        start = self._starts.pop(op, None)
        if start is not None:
            timeline.streams.events.give_back(start)

    def ran(self, op: Op, worker: str, start: float) -> None:
        """Note a host op that began at `start` (time.perf_counter) and ends now."""
        queued = self._queued.pop(op, 0.0)
        begin = (start - self._began) * 1e6
        self._entries[op] = TraceEntry(op.name, worker, "host", begin, self._now(), queued)

    def ran_in_turn(self, op: Op, start: float) -> None:
        """A serial engine ran `op`, from `start` until now; the trace ignores it."""

    def adopted(self, op: Op, region: Region) -> None:
        """`op` allocated `region`; the trace ignores it."""

    def dropped(self, op: Op) -> None:
        """Forget an op that did not run."""
        self._queued.pop(op, None)
        self._starts.pop(op, None)

    def _now(self) -> float:
        return (time.perf_counter() - self._began) * 1e6


def _in_order(found: list[tuple[Op, TraceEntry]]) -> list[TraceEntry]:
    """Entries in order of completion, from the order in which the ops were found to have ended.

    The order of finding is right across clocks: no dependent goes on before the op was found over.
    On one clock an op may be found late. It had ended before a later-ending op was found, so it is
    put before that op.
    """
    clocks: dict[int | None, list[tuple[Op, TraceEntry]]] = {}
    for op, entry in found:
        clocks.setdefault(_clock(op), []).append((op, entry))
    for entries in clocks.values():
        entries.sort(key=_end)
        entries.reverse()
    ordered: dict[Op, TraceEntry] = {}
    for op, _ in found:
        entries = clocks[_clock(op)]
        while op not in ordered:
            earliest, entry = entries.pop()
            ordered[earliest] = entry
    return list(ordered.values())


def _clock(op: Op) -> int | None:
    """The device with the clock that timed `op`; None for the host's clock."""
    return op._device.ordinal if isinstance(op, DeviceOp) else None


def _end(found: tuple[Op, TraceEntry]) -> tuple[float, int]:
    op, entry = found
    return entry.end_us, op.number
