"""Floor 2. How it is noticed that device ops are over: the driver is asked, by whoever needs it.

The stream's watcher asks for who waits, an issue now and then for all that came before it, and a
wait that is short by itself. Whoever finds out books it: see `completion`. All of these are methods
of the issuer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.engine.device import completion
from cudasync.engine.device.ready import settle
from cudasync.engine.op_classes import DeviceOp

if TYPE_CHECKING:
    from cudasync.engine.device.issuing import Issuer
    from cudasync.engine.device.timeline import Point, Timeline
    from cudasync.engine.op import Op
    from cudasync.errors import CudasyncError

# An issue asks the driver how far its stream has come once in this many, so that finished ops do
# not pile up in a program that never waits. One that waits now and then is not asked.
POLL_EVERY = 32
# With more than this in flight on one stream, its watcher waits for the middle one: a device that
# makes no progress unless someone waits for it is then driven along.
MOST_UNASKED = 256


def query(self: Issuer, op: Op) -> None:
    """Ask the driver whether an issued op has finished; book it if so. Never blocks."""
    assert isinstance(op, DeviceOp)
    completion.query(self, op)
    settle()


def watch(self: Issuer, op: Op) -> None:
    """See to it that `op` finishes without further pushes, now or once it is issued."""
    assert isinstance(op, DeviceOp)
    if op._is_watched:
        return
    point = op._point
    if point is not None:
        point[0].watch(op, point, self.report)
    # Last, since Ctrl-C may keep the watcher from being asked. To ask twice is harmless.
    op._is_watched = True
    if point is None and (point := op._point) is not None:
        # Issued meanwhile, by somebody who looked before this was said.
        point[0].watch(op, point, self.report)


def watch_streams(self: Issuer) -> None:
    """See to it that the next op to finish on each stream is noticed when it does."""
    for device in list(self.devices.values()):
        for timeline in device.timelines:
            for op in list(timeline.in_flight.values())[:1]:
                self.watch(op)


def report(self: Issuer, op: DeviceOp, point: Point, error: CudasyncError | None) -> None:
    """What a watcher found out about `op`."""
    if error is not None:
        completion.fault(self, op, error)
    else:
        completion.advance(self, point[0], point[1])
    settle()


def poll(self: Issuer, timeline: Timeline) -> None:
    """Ask how far the stream has come, unless few are on it as far as is known."""
    if timeline.load <= POLL_EVERY:
        return
    middle = timeline.in_flight.get((timeline.finished + timeline.issued) // 2 + 1)
    if middle is not None:
        completion.query(self, middle)
        if timeline.load > MOST_UNASKED:
            self.watch(middle)


def look(self: Issuer) -> None:
    """Book what the devices have finished by now."""
    for device in list(self.devices.values()):
        for timeline in device.timelines:
            # A stream finishes in order: the last that has is found by halves.
            seqs = sorted(timeline.in_flight)
            low, high = 0, len(seqs)
            while low < high:
                middle = (low + high) // 2
                op = timeline.in_flight.get(seqs[middle])
                if op is not None:
                    completion.query(self, op)
                if op is None or op.finished:
                    low = middle + 1
                else:
                    high = middle
    settle()
