"""Floor 2. The failure of an op: shared by all ops that it poisoned, and handled or not.

One `Failure` is made where an error first appears; every op that could not run because of it
carries the same object. Each waiter gets its own exception made from it, so that tracebacks of
different threads do not mix.

A failure is *handled* once somebody is told of it. Only this file defines that: a caller got an
exception made from the failure (`error`), cleared it, or was interrupted by its cause. If a failure
is not handled when its engine ends, `unhandled` reports it.

A failure keeps no frames of the engine. It keeps the frames of the program's function until it is
cleared or its engine has ended. An exception that the program got before belongs to the program.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from cudasync.atomic import Tickets
from cudasync.engine import frames
from cudasync.errors import OpError


def _one() -> list[None]:
    return [None]


@dataclass(slots=True, eq=False, weakref_slot=True)
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
    # The number of other ops that carry it.
    dependents: Tickets = field(default_factory=Tickets)
    # Holds an item until somebody is told: one thread takes the item.
    _untold: list[None] = field(default_factory=_one)

    def __post_init__(self) -> None:
        if isinstance(self.cause, Exception):
            frames.let_go_of_ours(self.cause)
        else:
            # Ctrl-C propagates to the interrupted thread, through frames that are yet to be added.
            self.let_go()

    def let_go(self) -> None:
        """Drop the frames: later exceptions get them as text."""
        self.cause = frames.without_frames(self.cause)

    @property
    def is_handled(self) -> bool:
        """True once somebody was told, or is about to be."""
        return not self._untold

    def error(self, *, hint: str = "") -> OpError:
        """A fresh exception for one waiter; the failure is handled by it."""
        self.handle()
        return OpError(self.op_name, self.push_site, self.cause, suspects=self.suspects, hint=hint)

    def handle(self) -> bool:
        """Mark the failure as told, now or soon; True only for the first caller."""
        try:
            self._untold.pop()
        except IndexError:
            return False
        return True
