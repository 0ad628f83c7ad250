"""Floor 2. Ops that are refused, since their engine has closed by the time they are planned."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from cudasync.engine import record as records
from cudasync.engine.failure import Failure
from cudasync.engine.planner import PLANNER
from cudasync.errors import ClosedError

if TYPE_CHECKING:
    from cudasync.engine.op import Op


def closed() -> ClosedError:
    return ClosedError("the engine was closed; make a new one")


def dropped(op: Op) -> Failure:
    """Why `op`, whose turn it is, does not begin: its engine was left by Ctrl-C."""
    cause = ClosedError("the engine was left by Ctrl-C before this op began")
    return Failure(op.number, op.name, op.push_site, cause)


def refuse(op: Op, number: int) -> None:
    """The planner found `op` behind the close of its engine: end it."""
    op.number = number
    # Every planner comes to the same end with it, so it does not matter who says so.
    op.failure = op.failure or Failure(number, op.name, op.push_site, closed())
    with suppress(AttributeError):
        del op._fn
        op._engine._ledger.counters.failed_ops.next()
    records.finish(op)


def raise_if_refused(op: Op) -> None:
    """The engine has closed while `op` was pushed: it was either in time, or is refused."""
    PLANNER.plan()
    if op.failure is not None and isinstance(op.failure.cause, ClosedError):
        raise op.failure.cause
