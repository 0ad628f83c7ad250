"""Floor 2. Ops in doubt: their stream may reach them although a predecessor elsewhere failed.

A stream that waits for an event of a lost device goes on as if the event had happened. So if a
stream has reached an op, that says nothing about the op's predecessors on other devices. An op
issued behind an unfinished op of another device, or behind an op in doubt, is in doubt itself. It
is over only once these predecessors are, and fails with them if it reads their data.

Ops without predecessors on another device are never in doubt, and pay nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.engine.op_classes import DEVICE_OPS

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import TypeGuard

    from cudasync.engine.device.events import EventPool, RingEvent
    from cudasync.engine.device.streams import DeviceStreams
    from cudasync.engine.device.timeline import Point, Timeline
    from cudasync.engine.op import Op
    from cudasync.engine.op_classes import DeviceOp


class Doubt:
    """The predecessors that must be over before an op is, even if its stream has reached it."""

    __slots__ = ("before", "sources", "streams")

    def __init__(
        self, before: tuple[DeviceOp, ...], sources: tuple[Op, ...], streams: DeviceStreams
    ) -> None:
        self.before = before
        # Writers of the op's reads; if one fails, so does the op.
        self.sources = sources
        self.streams = streams


def begin(
    op: DeviceOp, before: Sequence[Op], sources: tuple[Op, ...], streams: DeviceStreams
) -> None:
    """Note whether `op` is in doubt, before it has its point, and before the caller looks at the
    failures of `before`: so the caller sees the end of an op that ends in between."""
    found = tuple([each for each in before if _is_doubtful(each, streams)])
    if found:
        op._doubt = Doubt(found, sources, streams)
        streams.concerns[op] = None


def resolve(op: DeviceOp) -> None:
    """`op` is over. Harmless to repeat."""
    doubt = op._doubt
    if doubt is None:
        return
    concerns = doubt.streams.concerns
    if op.failure is not None:
        # A launch that took `op` for unfinished looks at the concerns afterwards: so a failure must
        # not make them empty.
        concerns[op.failure] = None
    op._doubt = None
    concerns.pop(op, None)


def through(point: Point, timeline: Timeline) -> list[tuple[DeviceOp, RingEvent, EventPool]]:
    """The pinned events of predecessors of `point` on third devices that `timeline` is not behind;
    `point` is on another device.

    `timeline` must wait for these too: the wait for `point` ends at once when its device is lost,
    even if `point` itself still waited.
    """
    found = []
    for its, seq in point[3].items():
        if its.streams is not point[0].streams and not timeline.is_behind(its, seq):
            other = its.in_flight.get(seq)
            # Both are None once that op is over.
            its_point = None if other is None else other._point
            if other is not None and its_point is not None and not its.is_gone:
                pool = its.streams.events
                if pool.pin(other, its_point[2]):
                    found.append((other, its_point[2], pool))
    return found


def _is_doubtful(other: Op, streams: DeviceStreams) -> TypeGuard[DeviceOp]:
    """True if `other` may be unfinished or fail although a stream of `streams` has passed it."""
    if other.finished or other.__class__ not in DEVICE_OPS:
        return False
    if other._doubt is not None:  # type: ignore[attr-defined]
        return True
    # None only if `other` is over by now.
    point = other._point
    return point is not None and point[0].streams.token is not streams.token
