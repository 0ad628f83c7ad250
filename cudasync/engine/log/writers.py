"""Floor 2. The last writer of some memory, if it is still known: for reports."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from cudasync.engine.log.combiner import COMBINER
from cudasync.engine.log.histories import latest
from cudasync.engine.op import OpKind
from cudasync.engine.op_classes import DeviceOp

if TYPE_CHECKING:
    from cudasync.engine.hazards.interval_map import Region
    from cudasync.engine.op import Op


def last_writer(region: Region) -> Op | None:
    """The last writer of the first of these bytes that has a known writer.

    None if no byte has one: writers that order nothing may be forgotten. An allocation is no
    writer.
    """
    ranges = latest(COMBINER.ranges)
    histories = []
    # IndexError: another thread plans meanwhile.
    with suppress(IndexError):
        histories = ranges.peek(region) if ranges is not None else []
    return next((each.writer for each in histories if _is_told(each.writer)), None)


def _is_told(writer: Op | None) -> bool:
    is_allocation = isinstance(writer, DeviceOp) and writer.kind is OpKind.ALLOCATE
    return writer is not None and not is_allocation
