"""The tower. What the engine tells a profile: an op was pushed, issued, ran, or was dropped.

This is what a profiled op pays, so it does little: times and references are put aside, and made
into records by `records()`. Two threads may both find that an op has ended; the first counts.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from cudasync.engine.op import OpKind, site_of
from cudasync.engine.op_classes import DeviceOp
from cudasync.errors import CudasyncError
from cudasync.profile.clocks import DeviceClock
from cudasync.profile.record import VIRTUAL, WALL, NodeTime, Record

if TYPE_CHECKING:
    from collections.abc import Callable

    from cudasync.driver import Stream
    from cudasync.engine.hazards.interval_map import Region
    from cudasync.engine.op import Op

_now = time.perf_counter
_NONE: tuple[Any, ...] = ((), (), ())


class Recorder:
    """Collects what happens to the ops of one engine; `outer` was told of them before."""

    # Host functions of graphs are timed, each by itself.
    times_functions = times_devices = True

    def __init__(
        self,
        wall: float,
        clocks: dict[int, DeviceClock],
        outer: Any = None,
        *,
        times_nodes: bool = False,
    ) -> None:
        # Nodes of a device are.
        self.times_nodes = times_nodes
        self._wall = wall
        self.clocks = clocks
        self.outer = outer
        # By op, when it was pushed. Ops leave when they end.
        self._queued: dict[Op, float] = {}
        self._issued: dict[Op, tuple[float, Any]] = {}
        # The memory that allocations made, by their numbers: it may be gone when these have ended.
        self._allocated: dict[int, Region] = {}
        # What ended: (queued, place, issued, found, start and end on the device's clock).
        self._ended: list[tuple[Any, ...]] = []

    @property
    def entries(self) -> Any:
        """What `Engine.trace()` returns while the profile lasts."""
        if self.outer is None:
            raise ValueError("this engine keeps no trace; make it with Engine(trace=True)")
        return self.outer.entries

    def pushed(self, op: Op) -> None:
        self._queued[op] = _now()
        if self.outer is not None:
            self.outer.pushed(op)

    def issuing(self, op: DeviceOp, stream: Stream, events: Any) -> None:
        """Mark on `stream` that `op` starts here; before its first command."""
        if self.outer is not None:
            self.outer.issuing(op, stream, events)
        if op not in self._queued:
            return
        device = events.device
        if device.ordinal not in self.clocks:
            self.join(device)
        start = events.take()
        if start.timing:
            stream.record(start)
            self._issued[op] = (_now(), start)

    def join(self, device: Any) -> None:
        """Tie the clock of a device that was not used before."""
        clock = DeviceClock(device, self._wall)
        known = [each for each in self.clocks.values() if each.is_virtual]
        if clock.is_virtual and known:
            clock.shift_us = known[0].axis_us(known[0].tie().device_us) - clock.ties[-1].device_us
        self.clocks.setdefault(device.ordinal, clock)

    def reached(self, op: DeviceOp) -> None:
        """Note a device op whose end event is complete, before the caller ends it.

        Several threads may: each reads the times, and the first one's count. So whoever goes on to
        end the op, and to use its events again, does so behind the note.
        """
        if self.outer is not None:
            self.outer.reached(op)
        point, issued = op._point, self._issued.get(op)
        if point is None or issued is None:
            return
        timeline, _, event, _ = point
        origin = self.clocks[timeline.device.ordinal].origin
        begin = end = None
        timed, nodes = op.node_times, ()
        # A profile is worth less than the op: where the device is lost, it has a hole.
        with suppress(CudasyncError, ValueError):
            begin = issued[1].elapsed_ms(origin) * 1e3
            end = event.elapsed_ms(origin) * 1e3
            if timed is not None:
                nodes = timed.since(origin)
        self._end(op, timeline.name, issued[0], begin, end, nodes)
        if self._issued.pop(op, None) is not None:
            timeline.streams.events.give_back(issued[1])
            if timed is not None:
                timed.give_back()

    def ran(self, op: Op, worker: str, start: float) -> None:
        """Note a host op that began at `start` (time.perf_counter) and ends now."""
        if self.outer is not None:
            self.outer.ran(op, worker, start)
        self._end(op, worker, start, None, None, op.node_times or ())

    def ran_in_turn(self, op: Op, start: float) -> None:
        """Note an op of a serial engine, host or device, that began at `start` and ends now."""
        if self.outer is not None:
            self.outer.ran_in_turn(op, start)
        self._end(op, "serial", start, None, None, op.node_times or ())

    def adopted(self, op: Op, region: Region) -> None:
        """Note which memory the allocation `op` made."""
        if self.outer is not None:
            self.outer.adopted(op, region)
        self._allocated[op.number] = region

    def dropped(self, op: Op) -> None:
        """Note an op that failed, or did not run."""
        if self.outer is not None:
            self.outer.dropped(op)
        self._issued.pop(op, None)
        self._end(op, None, None, None, None)

    def _end(
        self, op: Op, place: str | None, issued: Any, begin: Any, end: Any, nodes: Any = ()
    ) -> None:
        queued = self._queued.pop(op, None)
        if queued is None:
            return
        # Not the op, which would keep its result alive.
        self._ended.append(
            (op.number, op.name, op.kind, op._code, op._at, queued, op._reads, op._writes,
             op._regions, getattr(op, "_kernel", ""), _ordinal(op), _pool(op), place, issued,
             _now(), begin, end, nodes)
        )  # fmt: skip

    def records(self) -> list[Record]:
        """Everything that was pushed, in the order of pushes. Ops of which no end was told, though
        all have ended, are there without times."""
        for op in list(self._queued):
            self._end(op, None, None, None, None)
        made = [self._record(*each) for each in self._ended]
        return sorted(made, key=lambda record: record.number)

    def _record(
        self, number: int, name: str, kind: OpKind, code: Any, at: int, queued: float, reads: Any,
        writes: Any, regions: Any, kernel: Any, ordinal: int | None, pool: str, place: str | None,
        issued: float | None, found: float, begin: float | None, end: float | None, nodes: Any,
    ) -> Record:  # fmt: skip
        only_read, updated, written = regions or _NONE
        adopted = (self._allocated[number],) if number in self._allocated else ()
        made = Record(number, name, kind.value, site_of(code, at), self._us(queued), ordinal, pool)
        made.place, made.has_failed = place, place is None
        made.reads = (*only_read, *updated, *reads)
        made.writes = (*updated, *written, *writes, *adopted)
        made.nodes = () if isinstance(kernel, str) else tuple(str(each) for each in kernel)
        sizes = [_size(updated) + _size(written), _size(only_read)]
        made.size_bytes = min(filter(None, sizes), default=0) if made.is_copy else _size(adopted)
        if issued is None:
            return made
        made.issued_us, made.found_us = self._us(issued), self._us(found)
        if begin is not None and end is not None and ordinal is not None:
            clock = self.clocks[ordinal]
            made.clock = VIRTUAL if clock.is_virtual else WALL
            made.start_us, made.end_us = clock.axis_us(begin), clock.axis_us(end)
            made.node_times = _node_times(nodes, clock.axis_us)
        elif begin is None and (ordinal is None or place == "serial"):
            made.start_us, made.end_us = made.issued_us, made.found_us
            made.node_times = _node_times(nodes, self._us)
            made.nodes = made.nodes or tuple(each.name for each in made.node_times)
        return made

    def _us(self, moment: float) -> float:
        return (moment - self._wall) * 1e6


def _node_times(nodes: Any, us: Callable[[float], float]) -> tuple[NodeTime, ...]:
    return tuple(
        NodeTime(node.name, node.push_site, us(begin), us(end)) for node, begin, end in nodes
    )


def _ordinal(op: Op) -> int | None:
    return op._device.ordinal if isinstance(op, DeviceOp) else None


def _pool(op: Op) -> str:
    return "" if isinstance(op, DeviceOp) else str(getattr(op._pool, "name", "compute"))


def _size(regions: Any) -> int:
    return sum(each.end - each.start for each in regions)
