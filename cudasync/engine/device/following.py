"""Floor 2. The stream for an op that is issued in its push: mostly that of what it comes after.

Order within a stream costs nothing. So an op follows the youngest op that it comes after and that
is the last of its stream; for an op that follows none see `stream_group`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.engine.hazards.predecessors import predecessors
from cudasync.engine.op import OpKind
from cudasync.engine.op_classes import DeviceOp

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import TypeAlias

    from cudasync.engine.device.stream_group import StreamGroup
    from cudasync.engine.device.streams import DeviceStreams
    from cudasync.engine.device.timeline import Point, Timeline
    from cudasync.engine.log.histories import Found
    from cudasync.engine.op import Op

    # The stream; what the op comes after; whose failure is its own.
    Chosen: TypeAlias = tuple[Timeline | None, tuple[Op, ...], tuple[Op, ...]]

_FREE = OpKind.FREE


def choose(op: DeviceOp, streams: DeviceStreams, group: StreamGroup, found: Found) -> Chosen | None:
    """What `op` comes after, and the stream on which it does so without more ado.

    None unless all that it comes after is issued, or over. The stream is None if there is something
    to wait for, or that may have failed: then `Issuer.carry_out` looks for one.
    """
    if op._is_blocking:
        return None
    _, reads, writes, updated = found
    before, sources = predecessors(reads + writes[:updated], writes)
    # A free comes after kernels without being one.
    followable = streams.compute if op.kind is _FREE else group
    followed = None
    youngest = 0
    is_simple = True
    for each in before:
        if each.__class__ is not DeviceOp:
            return None
        point = each._point
        if point is None:
            if not each.finished:
                return None
            # It has ended meanwhile.
            is_simple = False
            continue
        timeline = point[0]
        # An op that fails as it is issued says so before it has its point.
        if timeline.streams is not streams or each.failure is not None:
            is_simple = False
        elif timeline.tail is each and each.number > youngest and timeline.followers is followable:
            followed, youngest = timeline, each.number
    if any(source._damage is not None for source in sources):
        # It failed in part: which is a question of the long way.
        return None
    ordered = tuple(before)
    if followed is None:
        followed = group.choose(ordered)
    is_simple = is_simple and _is_behind(followed, before)
    if is_simple:
        # A source that is over is there because it failed.
        is_simple = all(source in before for source in sources)
    # The concerns last: what was taken for unfinished is not in doubt, nor was it.
    if not is_simple or streams.concerns:
        followed = None
    return followed, ordered, tuple(sources)


def beside(point: Point, before: tuple[Op, ...], group: StreamGroup) -> Timeline | None:
    """The stream for an op that comes after one of this group, at `point`, which another one has
    followed already. None if there is something to wait for there."""
    chosen = group.choose(before if point[0].is_at_risk else ())
    if not chosen.is_behind(point[0], point[1]):
        return None
    if chosen.delays(before):
        group.streams.counters.shared.next()
    return chosen


def _is_behind(timeline: Timeline, before: Iterable[Op]) -> bool:
    """True if what is issued to `timeline` now comes after all of `before` without a wait."""
    clock = timeline.clock
    for each in before:
        point = each._point
        if point is not None:
            its, seq = point[0], point[1]
            if its is not timeline and its.finished < seq and clock.get(its, 0) < seq:
                return False
    return True
