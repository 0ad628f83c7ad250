"""The tower. An engine's recorder during a profile: it notes ends of device ops, and failures.

The log reports the rest. Two threads may both find that a device op has ended; the first counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cudasync.errors import CudasyncError

if TYPE_CHECKING:
    from cudasync.driver import Stream
    from cudasync.engine.hazards.interval_map import Region
    from cudasync.engine.op import Op
    from cudasync.engine.op_classes import DeviceOp
    from cudasync.profile.record_builder import Book


class Recorder:
    """The recorder of one engine during a profile; it forwards all calls to `outer`, if any."""

    # Each host function of a graph is timed.
    times_functions = True

    def __init__(self, book: Book, outer: Any = None, *, times_nodes: bool = False) -> None:
        # Whether each device node of a graph is timed.
        self.times_nodes = times_nodes
        self._book = book
        self.marking = book.marking
        self.outer = outer
        self.needs_plans = outer is not None and outer.needs_plans

    @property
    def entries(self) -> Any:
        """The result of `Engine.trace()` during the profile."""
        if self.outer is None:
            raise ValueError("this engine keeps no trace: make it with Engine(trace=True)")
        return self.outer.entries

    def pushed(self, op: Op) -> None:
        """Forward only: the log has reported the op."""
        if self.outer is not None:
            self.outer.pushed(op)

    def issuing(self, op: DeviceOp, stream: Stream, events: Any) -> None:
        """Forward only: the issuer marks the start of `op` next."""
        if self.outer is not None:
            self.outer.issuing(op, stream, events)

    def reached(self, op: DeviceOp) -> None:
        """Note a device op whose end event is complete, before the caller ends it.

        Several threads may call it: each reads the times, and the first note counts. So each thread
        ends the op, and reuses its events, only after the note.
        """
        if self.outer is not None:
            self.outer.reached(op)
        book = self._book
        point, issued = op._point, book.issued.get(op)
        if point is None or issued is None:
            return
        timeline, _, event, _ = point
        start, timed, nodes = issued[1], op.node_times, ()
        begin = end = None
        try:
            if start is not None:
                origin = book.clocks[timeline.device.ordinal].origin
                begin = start.elapsed_ms(origin) * 1e3
                end = event.elapsed_ms(origin) * 1e3
                if timed is not None:
                    nodes = timed.since(origin)
        except (CudasyncError, ValueError):
            # The op matters more than the profile: with a lost device the op has no times.
            begin = end = None
        book.end(op, timeline.name, issued[0], begin, end, nodes)
        if book.issued.pop(op, None) is not None:
            if start is not None:
                timeline.streams.events.give_back(start)
            if timed is not None:
                timed.give_back()

    def ran(self, op: Op, worker: str, start: float) -> None:
        """Forward only: a host op notes its own end."""
        if self.outer is not None:
            self.outer.ran(op, worker, start)

    def ran_in_turn(self, op: Op, start: float) -> None:
        """Note an op of a serial engine, host or device, that began at `start` and ends now."""
        if self.outer is not None:
            self.outer.ran_in_turn(op, start)
        self._book.end(op, "serial", start, nodes=op.node_times or ())

    def adopted(self, op: Op, region: Region) -> None:
        """Note the memory of the allocation `op`."""
        if self.outer is not None:
            self.outer.adopted(op, region)
        self._book.allocated[op.number] = region

    def dropped(self, op: Op) -> None:
        """Note an op that failed, or did not run."""
        if self.outer is not None:
            self.outer.dropped(op)
        self._book.issued.pop(op, None)
        self._book.end(op, None, None)
