"""Floor 2. Ops in doubt: what their stream has reached may not be over, or has failed elsewhere.

A stream that waits for an event of another device goes on when that device is lost, as if the event
had come. So that the stream has reached an op says nothing of what the op came after on other
devices. An op that is issued behind such an op, or behind one in doubt, is in doubt itself, and is
over only once these are: with their failure, if it reads what one of them was to write.

Ops that come after nothing of another device are never in doubt, and pay nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.engine.op_classes import DeviceOp

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import TypeGuard

    from cudasync.engine.device.events import EventPool, RingEvent
    from cudasync.engine.device.streams import DeviceStreams
    from cudasync.engine.device.timeline import Point, Timeline
    from cudasync.engine.op import Op


class Doubt:
    """What has to be over before an op is, though its stream may have reached it."""

    __slots__ = ("before", "sources", "streams")

    def __init__(
        self, before: tuple[DeviceOp, ...], sources: tuple[Op, ...], streams: DeviceStreams
    ) -> None:
        self.before = before
        # Writers of what the op reads; if one fails, so does the op.
        self.sources = sources
        self.streams = streams


def begin(
    op: DeviceOp, before: Sequence[Op], sources: tuple[Op, ...], streams: DeviceStreams
) -> None:
    """Note that `op` is in doubt, if it is; before it has its point, and before the failures of
    `before` are looked at: what ends in between is then seen to have ended."""
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
        # A launch that took `op` for unfinished looks at the concerns afterwards: so they do not
        # become empty by a failure.
        concerns[op.failure] = None
    op._doubt = None
    concerns.pop(op, None)


def through(point: Point, timeline: Timeline) -> list[tuple[DeviceOp, RingEvent, EventPool]]:
    """What `point`, on another device, comes after on yet others, and `timeline` is not behind: as
    events to wait for, pinned.

    To be waited for as well: the wait for `point` is over at once when its device is lost, whatever
    `point` itself still waited for.
    """
    found = []
    for its, seq in point[3].items():
        if its.streams is not point[0].streams and not timeline.is_behind(its, seq):
            other = its.in_flight.get(seq)
            # Both are None once it is over.
            its_point = None if other is None else other._point
            if other is not None and its_point is not None and not its.is_gone:
                pool = its.streams.events
                if pool.pin(other, its_point[2]):
                    found.append((other, its_point[2], pool))
    return found


def _is_doubtful(other: Op, streams: DeviceStreams) -> TypeGuard[DeviceOp]:
    """True if `other` may not be over, or fail, though a stream of `streams` is behind it."""
    if other.finished or other.__class__ is not DeviceOp:
        return False
    if other._doubt is not None:
        return True
    # None only if it is over by now.
    point = other._point
    return point is not None and point[0].streams.token is not streams.token
