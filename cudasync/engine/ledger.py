"""Floor 2. The books of one engine: which ops failed, what was counted and traced."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.engine.failure import Failure
from cudasync.engine.trace import Counters, Recorder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cudasync.atomic import Bell
    from cudasync.engine.op import Op


class Ledger:
    """What an engine remembers of its ops."""

    def __init__(self, *, trace: bool) -> None:
        # A dict, since each op that is poisoned adds the failure it carries once more.
        self.failures: dict[Failure, None] = {}
        self.counters = Counters()
        self.recorder = Recorder() if trace else None
        # Pushes that are held back until an op ends.
        self.held: list[Bell] = []

    def fail(self, op: Op, cause: BaseException, suspects: Sequence[str] = ()) -> Failure:
        """Make `op` a failed op, the root of whatever it poisons; it still has to finish."""
        failure = Failure(op.number, op.name, op.push_site, cause, tuple(suspects))
        if op.failure is None:
            op.failure = failure
        if self.recorder is not None:
            self.recorder.dropped(op)
        self.note(failure)
        return failure

    def note(self, failure: Failure) -> None:
        """Remember `failure` for those who wait for everything."""
        self.failures[failure] = None

    def ended(self) -> None:
        """An op has ended: let those who were held back look again."""
        if self.held:
            for bell in list(self.held):
                bell.ring()

    def first_failure(self) -> Failure | None:
        """The failure of the op that was pushed first, of those that were not cleared."""
        left = [failure for failure in list(self.failures) if not failure.cleared]
        return min(left, key=_number, default=None)

    def clear_failures(self) -> None:
        for failure in list(self.failures):
            failure.cleared = True
            self.failures.pop(failure, None)


def poison(sources: Sequence[Op]) -> Failure | None:
    """What keeps an op from running: the first failure of the writers of what it reads."""
    found = [each for source in sources if (each := source.failure) and not each.cleared]
    return min(found, key=_number) if found else None


def _number(failure: Failure) -> int:
    return failure.op_number
