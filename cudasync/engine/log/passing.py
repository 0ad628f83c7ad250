"""Floor 2. An op on byte ranges may be entered before plain ops that precede it in the log.

A plain op names variables only, so it has no hazard with an op that names no variable. The two
orders have the same plan. So the push of such an op does not plan plain ops for which no worker is
free yet: a worker that drains the log later needs no plan for them.

The combiner stores the index of the op in `started` as for each entry, and DONE in the log. It
leaves `done` as it is. A successor that finds the combiner inside the op copies the histories. It
enters the op again in the order of the log, unless it finds DONE.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.atomic import DONE
from cudasync.engine.op_classes import PlainOp

if TYPE_CHECKING:
    from cudasync.engine.log.epoch import Epoch
    from cudasync.engine.op import Op

# An op passes at most so many entries. Else a long host op would keep all later log.
MOST = 256


def index_of(op: Op, epoch: Epoch) -> int:
    """The index of `op`, which is in the log and unplanned, in the segment of `epoch`; -1 if
    entries before it must be planned first."""
    segment, done = epoch.segment, epoch.done or 0
    # Entries only change to DONE, so it stays true that all entries before `passed` can be passed.
    first = max(segment.passed, done)
    for index, entry in enumerate(segment.entries[first : done + MOST], first):
        if entry is op:
            if index > done:
                if op._reads or op._writes:
                    return -1
                segment.passed = index
            return index
        if entry.__class__ is not PlainOp and entry is not DONE:
            return -1
    return -1
