"""The tower. What an engine tells a profile beside what the log does: ends of device ops, failures.

Two threads may both find that an op of a device has ended; the first counts.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from cudasync.errors import CudasyncError

if TYPE_CHECKING:
    from cudasync.driver import Stream
    from cudasync.engine.hazards.interval_map import Region
    from cudasync.engine.op import Op
    from cudasync.engine.op_classes import DeviceOp
    from cudasync.profile.book import Book


class Recorder:
    """Stands in one engine while a profile lasts; `outer` was told before, and is told on."""

    # Host functions of graphs are timed, each by itself.
    times_functions = True

    def __init__(self, book: Book, outer: Any = None, *, times_nodes: bool = False) -> None:
        # Nodes of a device are.
        self.times_nodes = times_nodes
        self._book = book
        self.outer = outer
        self.needs_plans = outer is not None and outer.needs_plans

    @property
    def entries(self) -> Any:
        """What `Engine.trace()` returns while the profile lasts."""
        if self.outer is None:
            raise ValueError("this engine keeps no trace; make it with Engine(trace=True)")
        return self.outer.entries

    def pushed(self, op: Op) -> None:
        """The log has told of it."""
        if self.outer is not None:
            self.outer.pushed(op)

    def issuing(self, op: DeviceOp, stream: Stream, events: Any) -> None:
        """The function of `op` is about to be called, which marks its start by itself."""
        if self.outer is not None:
            self.outer.issuing(op, stream, events)

    def reached(self, op: DeviceOp) -> None:
        """Note a device op whose end event is complete, before the caller ends it.

        Several threads may: each reads the times, and the first one's count. So whoever goes on to
        end the op, and to use its events again, does so behind the note.
        """
        if self.outer is not None:
            self.outer.reached(op)
        book = self._book
        point, issued = op._point, book.issued.get(op)
        if point is None or issued is None:
            return
        timeline, _, event, _ = point
        origin = book.clocks[timeline.device.ordinal].origin
        begin = end = None
        timed, nodes = op.node_times, ()
        # A profile is worth less than the op: where the device is lost, it has a hole.
        with suppress(CudasyncError, ValueError):
            begin = issued[1].elapsed_ms(origin) * 1e3
            end = event.elapsed_ms(origin) * 1e3
            if timed is not None:
                nodes = timed.since(origin)
        book.end(op, timeline.name, issued[0], begin, end, nodes)
        if book.issued.pop(op, None) is not None:
            timeline.streams.events.give_back(issued[1])
            if timed is not None:
                timed.give_back()

    def ran(self, op: Op, worker: str, start: float) -> None:
        """A host op ended, which has noted that by itself."""
        if self.outer is not None:
            self.outer.ran(op, worker, start)

    def ran_in_turn(self, op: Op, start: float) -> None:
        """Note an op of a serial engine, host or device, that began at `start` and ends now."""
        if self.outer is not None:
            self.outer.ran_in_turn(op, start)
        self._book.end(op, "serial", start, nodes=op.node_times or ())

    def adopted(self, op: Op, region: Region) -> None:
        """Note which memory the allocation `op` made."""
        if self.outer is not None:
            self.outer.adopted(op, region)
        self._book.allocated[op.number] = region

    def dropped(self, op: Op) -> None:
        """Note an op that failed, or did not run."""
        if self.outer is not None:
            self.outer.dropped(op)
        self._book.issued.pop(op, None)
        self._book.end(op, None, None)
