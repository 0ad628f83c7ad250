"""Floor 2. Markers: ops without a function, to wait for what others wrote, or for everything."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from cudasync.engine import record as records
from cudasync.engine.ledger import poison
from cudasync.engine.op import Fence, Marker, Op
from cudasync.engine.planner import PLANNER

if TYPE_CHECKING:
    from cudasync.engine.engine import Engine
    from cudasync.engine.ranges import Region
    from cudasync.engine.variable import Var


class _Markers:
    """Ends markers where they become ready: there is nothing to run."""

    def put(self, op: Op) -> None:
        if not op.finished:
            op.failure = poison(records.plan_of(op).sources)
            records.finish(op)

    def query(self, op: Op) -> None:
        """A marker ends with the last op before it."""

    def watch(self, op: Op) -> None:
        """What comes before it is watched as soon as it is planned."""


_MARKERS = _Markers()


def mark(engine: Engine, variables: list[Var], regions: list[Region]) -> Marker:
    """A marker that is over once the ops are that wrote these last; poisoned as they are."""
    marker = Marker()
    marker._reads = tuple(variables)
    if regions:
        marker._regions = tuple(regions), (), ()
    _append(marker, engine, "wait")
    return marker


def fence(engine: Engine) -> Fence:
    """A marker that is over once every op is that `engine` was pushed before."""
    marker = Fence()
    marker._reads = ()
    _append(marker, engine, "waitall")
    return marker


def _append(marker: Marker, engine: Engine, name: str) -> None:
    frame = sys._getframe(2)
    marker.finished = False
    marker.failure = None
    marker.number = 0
    marker.name = name
    marker._engine = engine
    marker._writes = ()
    marker._pool = _MARKERS
    marker._record = None
    marker._code = frame.f_code
    marker._at = frame.f_lasti
    PLANNER.log.append(marker)
