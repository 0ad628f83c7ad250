"""Floor 2. Watching for the end of device ops: queries of the driver.

A stream's watcher waits in the driver for waiters. An issue polls now and then for earlier ops, and
a short wait polls by itself. The thread that finds an op over ends it: see `completion`. All
functions here are methods of the issuer.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING

from cudasync.driver import Event
from cudasync.driver.streams.open_captures import Relaxed
from cudasync.engine.device import completion
from cudasync.engine.device.ready import settle
from cudasync.engine.op_classes import DeviceOp
from cudasync.errors import CudasyncError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cudasync.engine.device.issue import Issuer
    from cudasync.engine.device.streams import DeviceStreams
    from cudasync.engine.device.timeline import Point, Timeline
    from cudasync.engine.engine import Engine
    from cudasync.engine.op import Op

# One in this many issues polls the progress of its stream, so that finished ops do not pile up in a
# program that never waits. A stream with at most this many ops in flight is not polled.
POLL_EVERY = 32
# With more than this in flight on one stream, its watcher waits for the middle op: this drives a
# device that makes progress only while a thread waits.
MOST_UNASKED = 256
_TAIL = attrgetter("tail")
# `RingEvent.query` for a caller that is in relaxed mode.
_is_reached = Event.query


def query(self: Issuer, op: Op) -> None:
    """Ask the driver whether an issued op has finished; if so, end it. Never blocks."""
    assert isinstance(op, DeviceOp)
    completion.query(self, op)
    settle()


def watch(self: Issuer, op: Op) -> None:
    """Ensure that `op` ends without further pushes, now or once it is issued."""
    assert isinstance(op, DeviceOp)
    if op._is_watched:
        return
    point = op._point
    if point is not None:
        point[0].watch(op, point, self.report)
    # Last, since Ctrl-C may prevent the question to the watcher. Asking twice is harmless.
    op._is_watched = True
    if point is None and (point := op._point) is not None:
        # Issued meanwhile, by a thread that looked before the store.
        point[0].watch(op, point, self.report)


def watch_streams(self: Issuer) -> None:
    """Ensure that the end of the next op on each stream is noticed."""
    for device in list(self.devices.values()):
        for timeline in device.timelines:
            for op in list(timeline.in_flight.values())[:1]:
                self.watch(op)


def report(self: Issuer, op: DeviceOp, point: Point, error: CudasyncError | None) -> None:
    """A watcher reports the end of `op`, or an error."""
    if error is not None:
        completion.fault(self, op, error)
    else:
        completion.advance(self, point[0], point[1])
    settle()


def poll(self: Issuer, timeline: Timeline) -> None:
    """Poll the progress of the stream, unless only few ops are known to be on it."""
    if timeline.load <= POLL_EVERY:
        return
    middle = timeline.in_flight.get((timeline.finished + timeline.issued) // 2 + 1)
    if middle is not None:
        completion.query(self, middle)
        if timeline.load > MOST_UNASKED:
            self.watch(middle)


def tails(self: Issuer) -> list[DeviceOp]:
    """The last op on each stream, unless it is known to be over."""
    return [
        op
        for device in list(self.devices.values())
        for op in filter(None, map(_TAIL, device.created))
        if not op.finished
    ]


def end_reached(self: Issuer, asked: Sequence[DeviceOp]) -> list[DeviceOp]:
    """Ask the driver about ops on different streams, and end the ops up to those that are over.

    Returns the ops that are not over. Never blocks.
    """
    with Relaxed():
        left, reached, failed = _by_progress(asked)
    for device, points in reached.items():
        completion.advance_all(self, device, points)
    for op, error in failed:
        completion.fault(self, op, error)
    settle()
    return left


def _by_progress(
    asked: Sequence[DeviceOp],
) -> tuple[list[DeviceOp], dict[DeviceStreams, list[Point]], list[tuple[DeviceOp, CudasyncError]]]:
    """The ops that are not over, the places that are reached, and the driver's errors."""
    left: list[DeviceOp] = []
    reached: dict[DeviceStreams, list[Point]] = {}
    failed: list[tuple[DeviceOp, CudasyncError]] = []
    for op in asked:
        point = op._point
        if point is None:
            # Another thread ends it, or has ended it.
            if not op.finished:
                left.append(op)
            continue
        try:
            is_reached = _is_reached(point[2])
        except CudasyncError as error:
            failed.append((op, error))
            continue
        if is_reached:
            reached.setdefault(point[0].streams, []).append(point)
        else:
            left.append(op)
    return left, reached, failed


def has_issued_all(self: Issuer, engine: Engine) -> bool:
    """True if all planned ops of the engine are on streams. A guess: others end some meanwhile."""
    issued = sum(
        len(timeline.in_flight)
        for device in list(self.devices.values())
        for timeline in device.created
    )
    return issued == len(engine._registered)


def look(self: Issuer) -> None:
    """End all ops that the devices have finished by now."""
    for device in list(self.devices.values()):
        for timeline in device.timelines:
            # A stream finishes in order: bisection finds the last finished op.
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
