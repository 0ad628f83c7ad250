"""Floor 2. The last of many ops on each stream. A stream finishes in order, so only these need a
question to the driver: the others are over by then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.engine.op_classes import DEVICE_OPS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cudasync.engine.device.timeline import Timeline
    from cudasync.engine.op import Op
    from cudasync.engine.op_classes import DeviceOp


def last_on_streams(ops: Iterable[Op]) -> list[DeviceOp]:
    """The issued ops of `ops` that are last on their streams, and all device ops that are not
    issued yet."""
    waiting: list[DeviceOp] = []
    last: dict[Timeline, tuple[int, DeviceOp]] = {}
    for op in ops:
        if op.__class__ not in DEVICE_OPS or op.finished:
            continue
        point = op._point
        if point is None:
            # It may be issued, or over, from now on.
            waiting.append(op)  # type: ignore[arg-type]
            continue
        timeline, seq = point[0], point[1]
        known = last.get(timeline)
        if known is None or known[0] < seq:
            last[timeline] = (seq, op)  # type: ignore[assignment]
    return [*(op for _, op in last.values()), *waiting]
