"""Floor 2. Fences: ops without a function, to wait for the writers of data, or for all ops."""

from __future__ import annotations

import sys
import time
import weakref
from typing import TYPE_CHECKING

from cudasync.engine.device.ready import READY
from cudasync.engine.ledger import poison
from cudasync.engine.log import node as nodes
from cudasync.engine.log.combiner import COMBINER
from cudasync.engine.op_classes import DataFence, Fence

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cudasync.engine.engine import Engine
    from cudasync.engine.failure import Failure
    from cudasync.engine.hazards.interval_map import Region
    from cudasync.engine.hazards.variable import Var
    from cudasync.engine.op import Op


class _Fences:
    """Ends fences where they become ready: there is nothing to run."""

    def put(self, op: Op) -> None:
        # Not ended here: in a chain, each of a thousand fences would end inside the previous one.
        READY[op] = None

    def issue(self, op: Op) -> None:
        """End a fence that nothing blocks."""
        failure = poison(op, nodes.gate_of(op).sources)
        # Several threads may be here, and the one that ends the fence empties its gate. A thread
        # that is late finds no source there: so it may set the failure, and never take it away.
        if failure is not None and op.failure is None:
            op.failure = failure
        if not op.finished:
            nodes.finish(op)

    def query(self, op: Op) -> None:
        """A fence ends with the last op before it."""

    def watch(self, op: Op) -> None:
        """Its predecessors are watched as soon as it is planned."""


_FENCES = _Fences()


def behind(engine: Engine, variables: list[Var], regions: list[Region]) -> DataFence:
    """A fence that is over once the last writers of these are; they poison it if they failed."""
    made = DataFence()
    made._reads = tuple(variables)
    if regions:
        made._regions = tuple(regions), (), ()
    _append(made, engine, "wait")
    return made


def overwrite(engine: Engine, regions: Sequence[Region], failure: Failure | None = None) -> None:
    """Let an op without a function be the last writer of these bytes, behind all earlier users: it
    heals them, or poisons them with `failure`. No engine counts that failure as its own."""
    if not regions:
        return
    made = DataFence()
    made._reads = ()
    made._regions = (), (), tuple(regions)
    _append(made, engine, "wait", failure)


def fence(engine: Engine) -> Fence:
    """A fence that is over once every earlier op of `engine` is.

    If nothing was pushed since the last fence, return that: polling makes no further fences.
    """
    last = engine._last_fence()
    if last is not None and not last.finished and last.number + 1 == COMBINER.log.end:
        return last
    made = Fence()
    made._reads = ()
    _append(made, engine, "waitall")
    engine._last_fence = weakref.ref(made)
    return made


def is_idle(engine: Engine) -> bool:
    """True if every op of `engine` pushed so far is over. False also if threads push meanwhile."""
    end = COMBINER.log.end
    if COMBINER.unplanned:
        return False
    # After the look at the log: so all ops before `end` are planned, and those left are here. An op
    # that ended since the look may have pushed another: the end of the log tells.
    registered = engine._registered
    if registered:
        # Its ender was struck, or is suspended, before it removed it.
        for op in list(registered):
            if not op.finished:
                return False
    return COMBINER.log.end == end


def wait_for_all(engine: Engine, deadline: float | None) -> None:
    """Wait until every op of `engine`, and each op that these push, has finished.

    Raises TimeoutError after the deadline (time.monotonic).
    """
    while True:
        nested = engine._nested.taken
        left = None if deadline is None else max(0.0, deadline - time.monotonic())
        fence(engine)._wait_finished(left)
        if engine._nested.taken == nested:
            return


def _append(made: DataFence, engine: Engine, name: str, failure: Failure | None = None) -> None:
    frame = sys._getframe(2)
    made.finished = False
    made.failure = failure
    made.number = 0
    made.name = name
    made._engine = engine
    made._writes = ()
    made._pool = _FENCES
    made._node = None
    made._claims = []
    made._code = frame.f_code
    made._at = frame.f_lasti
    COMBINER.log.append(made)
