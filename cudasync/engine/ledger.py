"""Floor 2. The records of one engine: its counters and trace, and the entry of a failure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.engine import current
from cudasync.engine.batch.failed_step import name_to_blame
from cudasync.engine.failure import Failure
from cudasync.engine.log.node import origins_of
from cudasync.engine.trace import Counters, Recorder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cudasync.atomic import Bell
    from cudasync.engine.log.entries import Adopt
    from cudasync.engine.op import Op


class Ledger:
    """The counters, trace and held-back pushes of an engine."""

    def __init__(self, *, trace: bool) -> None:
        self.counters = Counters()
        self.recorder = Recorder() if trace else None
        # Pushes that are held back until an op ends.
        self.held: list[Bell] = []

    def fail(self, op: Op, cause: BaseException, suspects: Sequence[str] = ()) -> Failure:
        """Make `op` a failed op, the root of all ops that it poisons; it must still finish."""
        failure = Failure(op.number, name_to_blame(op, cause), op.push_site, cause, tuple(suspects))
        if op.failure is None:
            op.failure = failure
        if self.recorder is not None:
            self.recorder.dropped(op)
        if not isinstance(cause, Exception) and not current.is_ours():
            # Ctrl-C: it propagates to the interrupted thread.
            failure.handle()
        op._engine._failures.note(failure, op)
        return failure

    def adopted(self, entry: Adopt) -> Adopt:
        """`entry` is about to go into the log: tell the recorder its memory."""
        if self.recorder is not None:
            self.recorder.adopted(entry.op, entry.region)
        return entry

    def ended(self) -> None:
        """An op has ended: let held-back pushes look again."""
        if self.held:
            for bell in list(self.held):
                bell.ring()


def poison(op: Op, sources: Sequence[Op]) -> Failure | None:
    """The failure that keeps `op` from running: the first failure among its sources."""
    found = [
        each
        for source in sources
        if (each := source.failure) and not each.cleared and _reaches(source, op)
    ]
    return min(found, key=_number) if found else None


def _reaches(source: Op, op: Op) -> bool:
    """True if `op` reads data that `source`, which failed, has left wrong."""
    return source._damage is None or origins_of(op).is_hit(source)


def _number(failure: Failure) -> int:
    return failure.op_number
