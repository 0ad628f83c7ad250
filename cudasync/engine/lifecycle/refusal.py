"""Floor 2. Refusals: engines of an impossible size, ops of an engine that has closed."""

from __future__ import annotations

from threading import get_ident
from typing import TYPE_CHECKING

from cudasync.engine.failure import Failure
from cudasync.engine.frames import without_frames
from cudasync.engine.log import node as nodes
from cudasync.engine.log.combiner import COMBINER
from cudasync.engine.op import claim, claimant
from cudasync.errors import ClosedError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cudasync.engine.op import Op


def refuse_sizes(pools: Mapping[str, int], streams: int | None, max_in_flight: int | None) -> None:
    """Raise ValueError for an impossible size of an engine."""
    for name, size in pools.items():
        if size < 1:
            raise ValueError(f"worker pool {name!r} needs at least 1 worker, not {size}")
    if streams is not None and streams < 1:
        raise ValueError(f"streams must be at least 1, not {streams}")
    if max_in_flight is not None and max_in_flight < 1:
        raise ValueError(f"max_in_flight must be at least 1, not {max_in_flight}")


def closed() -> ClosedError:
    return ClosedError("the engine was closed: make a new one")


def dropped(op: Op) -> Failure:
    """The failure of `op`, which does not begin because its engine was left by Ctrl-C."""
    cause = ClosedError("Ctrl-C left the engine before this op began")
    failure = Failure(op.number, op.name, op.push_site, cause)
    # Ctrl-C has reported it.
    failure.handle()
    return failure


@claimant
def refuse(op: Op, number: int) -> None:
    """The combiner found `op` behind the close of its engine: end it."""
    op.number = number
    # Every combiner gives it the same failure, so any of them may.
    op.failure = op.failure or Failure(number, op.name, op.push_site, closed())
    if claim(op, get_ident()) is not None:
        op._engine._ledger.counters.failed_ops.next()
    nodes.finish(op)


def raise_if_refused(op: Op) -> None:
    """The engine closed during the push of `op`: raise ClosedError unless it was in time."""
    COMBINER.plan()
    if op.failure is not None and isinstance(op.failure.cause, ClosedError):
        raise without_frames(op.failure.cause)
