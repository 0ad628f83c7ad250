"""Floor 2. The stream for an op that is issued in its push: usually its predecessor's stream.

Order within a stream costs nothing. So an op follows its youngest predecessor that is the last op
of its stream. For an op that follows no predecessor see `stream_group`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.engine.hazards.predecessors import predecessors
from cudasync.engine.op import OpKind
from cudasync.engine.op_classes import DEVICE_OPS

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import TypeAlias

    from cudasync.engine.device.stream_group import StreamGroup
    from cudasync.engine.device.streams import DeviceStreams
    from cudasync.engine.device.timeline import Point, Timeline
    from cudasync.engine.log.histories import Found
    from cudasync.engine.op import Op
    from cudasync.engine.op_classes import DeviceOp

    # The stream; the predecessors; the sources, which may poison the op.
    Chosen: TypeAlias = tuple[Timeline | None, tuple[Op, ...], tuple[Op, ...]]

_FREE = OpKind.FREE


def choose(op: DeviceOp, streams: DeviceStreams, group: StreamGroup, found: Found) -> Chosen | None:
    """The predecessors of `op`, and a stream on which it needs no waits.

    None unless all predecessors are issued or over. The stream is None if the op needs a wait, or a
    predecessor may have failed: then `Issuer.carry_out` finds a stream.
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
        if each.__class__ not in DEVICE_OPS:
            return None
        point = each._point
        if point is None:
            if not each.finished:
                return None
            # It has ended meanwhile.
            is_simple = False
            continue
        timeline = point[0]
        # An op that fails during issue has its failure before its point.
        if timeline.streams is not streams or each.failure is not None:
            is_simple = False
        elif timeline.tail is each and each.number > youngest and timeline.followers is followable:
            followed, youngest = timeline, each.number
    if any(source._damage is not None for source in sources) or (
        op._salvage is not None and any(source.is_poisoned for source in sources)
    ):
        # One of them failed in part, or `op` will run in part: the long way handles that.
        return None
    ordered = tuple(before)
    if followed is None:
        followed = group.choose(ordered)
    is_simple = is_simple and _is_behind(followed, before)
    if is_simple:
        # A finished source is listed only if it failed.
        is_simple = all(source in before for source in sources)
    # The concerns last: then an op taken for unfinished is not in doubt, and was not.
    if not is_simple or streams.concerns:
        followed = None
    return followed, ordered, tuple(sources)


def beside(point: Point, before: tuple[Op, ...], group: StreamGroup) -> Timeline | None:
    """The stream for an op whose predecessor, at `point` in this group, already has a follower.
    None if the op would need a wait there."""
    chosen = group.choose(before if point[0].is_at_risk else ())
    if not chosen.is_behind(point[0], point[1]):
        return None
    if chosen.delays(before):
        group.streams.counters.shared.next()
    return chosen


def _is_behind(timeline: Timeline, before: Iterable[Op]) -> bool:
    """True if work issued to `timeline` now comes after all of `before` without a wait."""
    clock = timeline.clock
    for each in before:
        point = each._point
        if point is not None:
            its, seq = point[0], point[1]
            if its is not timeline and its.finished < seq and clock.get(its, 0) < seq:
                return False
    return True
