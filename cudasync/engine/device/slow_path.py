"""Floor 2. The long way: a node and a join gate for a device op that its push cannot issue.

The push starts it; the thread that ends or issues the op's last predecessor issues the op.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from cudasync.engine.log import node as nodes
from cudasync.engine.log.combiner import COMBINER
from cudasync.errors import CudasyncError

if TYPE_CHECKING:
    from cudasync.engine.op_classes import DeviceOp


def go_on(op: DeviceOp) -> None:
    """Plan `op`, which is in the log. Never blocks."""
    with suppress(CudasyncError):
        if op._device.context.token not in op._pool.devices:
            # Now, since the op may be issued while the program ends: engines that know of a device
            # are closed before the driver.
            op._pool.streams_of(op._device)
    COMBINER.plan(op)
    if op._is_owned and op._point is None and not op.finished:
        # Nothing blocks it, and no other thread may be issuing it on return.
        op._pool.issue(op)


def leave(op: DeviceOp) -> None:
    """After Ctrl-C: let another thread continue with `op`, now or once nothing blocks it."""
    op._is_owned = False
    # Behind that store: the thread that lets the op become ready looks at it afterwards.
    if nodes.is_ready(op):
        op._pool.put(op)
