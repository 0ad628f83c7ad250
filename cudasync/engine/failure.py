"""Floor 2. What went wrong in an op, shared by everything it poisoned.

One `Failure` is made where an error first shows; every op that could not run because of it
carries the same object. Waiters each get an exception of their own made from it, so that
tracebacks of different threads do not mix.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from cudasync.errors import OpError


@dataclass(slots=True, eq=False)
class Failure:
    """An op's exception, and where that op was pushed."""

    # The op's place in the total order of pushes.
    op_number: int
    op_name: str
    push_site: str
    cause: BaseException
    suspects: tuple[str, ...] = ()
    # Set by clear_errors(): a cleared failure no longer poisons and is no longer raised.
    cleared: bool = field(default=False)

    def error(self) -> OpError:
        """A fresh exception for one waiter."""
        return OpError(self.op_name, self.push_site, self.cause, suspects=self.suspects)
