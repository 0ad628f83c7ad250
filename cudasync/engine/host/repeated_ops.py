"""Floor 2. Host ops that are pushed repeatedly with the same accesses: segments of graphs.

The accesses are resolved once. Then the cost of a push does not depend on the number of variables:
their writes are counted together, and they are checked only after some variable got a history.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cudasync.engine import current
from cudasync.engine.hazards.interval_map import keep_what_lies_between
from cudasync.engine.hazards.variable import counted_together
from cudasync.engine.lifecycle import refusal
from cudasync.engine.log.combiner import COMBINER
from cudasync.engine.log.histories import MADE
from cudasync.engine.op_classes import FullOp

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from cudasync.engine.engine import Engine
    from cudasync.engine.hazards.accesses import Accesses

    Bind = Callable[[Any], Callable[..., Any]]

_LOG = COMBINER.log
_maybe_inside = current.maybe_inside


class Resolved:
    """The accesses of an op, in the form of the op's fields."""

    __slots__ = (
        "_clear_at",
        "_histories",
        "count",
        "has_regions",
        "is_short",
        "reads",
        "regions",
        "writes",
    )

    def __init__(self, accesses: Accesses) -> None:
        (only_read, updated, written), self.reads, self.writes = accesses
        self.regions = keep_what_lies_between(only_read + updated, (), updated + written)
        self.has_regions = any(self.regions)
        # One dict per variable; empty while its ops left nothing to remember.
        self._histories = tuple(each._histories for each in dict.fromkeys(self.reads + self.writes))
        # `MADE.latest` when all of these were empty: while it is unchanged, they are empty.
        self._clear_at: object = None
        # Counts one more write of each written variable.
        self.count = counted_together(self.writes).next
        # True if the op ended well in a short time when it ran last: its waiter may run the next.
        self.is_short = False

    def has_histories(self) -> bool:
        """True if one of its variables has a history. For the combiner."""
        latest = MADE.latest
        if self._clear_at is latest:
            return False
        if any(self._histories):
            return True
        self._clear_at = latest
        return False


def push(
    engine: Engine, bind: Bind, accesses: Resolved, name: str, pool: Any, frame: FrameType
) -> FullOp:
    """Push a host op, at `frame`, onto a direct engine; the op calls `bind(op)`.

    Raises ClosedError once the engine is closed.
    """
    op = FullOp()
    op.finished = False
    op.failure = None
    op.number = 0
    op.name = name
    op._engine = engine
    op._fn = bind(op)
    op._claims = []
    op._reads = accesses.reads
    op._writes = accesses.writes
    op._resolved = accesses
    op._pool = pool
    if accesses.has_regions:
        op._regions = accesses.regions
        op._pool = pool.regional
    op._node = None
    op._code = frame.f_code
    op._at = frame.f_lasti
    _LOG.append(op)
    # Behind the append: a wait for all that misses this number has its fence behind the op.
    if _maybe_inside() is not None:
        engine._nested.next()
    # Only now: a thread that sees the count comes after the write.
    accesses.count()
    if not pool.searching and pool.is_silent():
        pool.ring()
    if engine._is_closed:
        refusal.raise_if_refused(op)
    return op
