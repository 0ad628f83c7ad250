"""Floor 2. The waits of a stream for an op's predecessors: as few as possible.

A stream that is already behind an event need not wait for it, nor for the event's predecessors: its
clock shows that. Awaited events are pinned meanwhile, so that they are not reused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.engine.device import completion, in_doubt
from cudasync.engine.op_classes import DEVICE_OPS, DeviceOp
from cudasync.errors import CudaError

if TYPE_CHECKING:
    from cudasync.engine.device.events import EventPool, RingEvent
    from cudasync.engine.device.timeline import Timeline
    from cudasync.engine.op import Op


def wait_for(
    op: DeviceOp,
    before: tuple[Op, ...],
    sources: tuple[Op, ...],
    timeline: Timeline,
) -> bool:
    """Enqueue the needed waits on the stream; False if a predecessor has failed by now."""
    for each in before:
        point = each._point if each.__class__ in DEVICE_OPS else None
        if point is None or point[0] is not timeline:
            break
    else:
        # All predecessors are on this stream.
        if timeline.streams.concerns:
            in_doubt.begin(op, before, sources, timeline.streams)
        for each in before:
            timeline.elided += 1
            if each.failure is not None:
                return False
        return True
    in_doubt.begin(op, before, sources, timeline.streams)
    for device_op, event, pool in _waits(before, timeline):
        try:
            timeline.stream.wait(event)
        except CudaError as error:
            # Either the event's device is lost, or the stream's.
            if not error.sticky or device_op._device is op._device or timeline.streams.is_lost():
                raise
            # Nothing runs on the other device any more: the awaited op has failed.
            completion.fault(device_op._pool, device_op, error)
        finally:
            pool.unpin(event)
    # Checked last: an op that ended without failure, or that the stream waits for, has run.
    return all(each.failure is None for each in before)


def _waits(
    before: tuple[Op, ...], timeline: Timeline
) -> list[tuple[DeviceOp, RingEvent, EventPool]]:
    """The pinned events that `timeline` must wait for before an op that comes after `before`."""
    waits: list[tuple[DeviceOp, RingEvent, EventPool]] = []
    counters = timeline.streams.counters
    # Youngest first: its predecessors need no further wait.
    for each in sorted(before, key=_number, reverse=True):
        if not isinstance(each, DeviceOp):
            continue
        point = each._point
        if point is None or timeline.is_behind(point[0], point[1]):
            timeline.elided += 1
            continue
        if point[0].streams.token is not timeline.streams.token:
            waits += in_doubt.through(point, timeline)
        if point[0].is_gone:
            timeline.elided += 1
            continue
        event, pool = point[2], point[0].streams.events
        if pool.pin(each, event):
            waits.append((each, event, pool))
            timeline.learn(point)
        else:
            timeline.elided += 1
    for _ in waits:
        counters.waits.next()
    return waits


def _number(op: Op) -> int:
    return op.number
