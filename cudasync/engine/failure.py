"""Floor 2. What went wrong in an op, shared by everything it poisoned, and whether anybody knows.

One `Failure` is made where an error first shows; every op that could not run because of it
carries the same object. Waiters each get an exception of their own made from it, so that
tracebacks of different threads do not mix.

A failure is *handled* once somebody is told of it. This is the one place that says who is: whoever
gets an exception made from it (`error`), or cleared it, or was interrupted by its cause. What is
not handled when its engine ends is reported: see `unhandled`.

A failure keeps no frame of ours, and those of the program's function until it is of no more use to
its engine: cleared, or the engine has ended. What the program was told of before is its own.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from cudasync.atomic import Tickets
from cudasync.engine import frames
from cudasync.errors import OpError


def _one() -> list[None]:
    return [None]


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
    # How many ops carry it besides the one that failed.
    dependents: Tickets = field(default_factory=Tickets)
    # An item until somebody is told: one thread takes it out.
    _untold: list[None] = field(default_factory=_one)

    def __post_init__(self) -> None:
        if isinstance(self.cause, Exception):
            frames.let_go_of_ours(self.cause)
        else:
            # Ctrl-C goes on to whoever was interrupted, through frames that have yet to come.
            self.let_go()

    def let_go(self) -> None:
        """Keep no frames any more: who asks from now on gets them as text."""
        self.cause = frames.without_frames(self.cause)

    def error(self) -> OpError:
        """A fresh exception for one waiter, who is told by it."""
        self.handle()
        return OpError(self.op_name, self.push_site, self.cause, suspects=self.suspects)

    def handle(self) -> bool:
        """Somebody is told, or about to be; True for one caller, who is the first."""
        try:
            self._untold.pop()
        except IndexError:
            return False
        return True
