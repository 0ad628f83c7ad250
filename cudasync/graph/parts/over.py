"""Floor 3, parts. By what each op of a launch is known to be over.

An op that writes nothing would be followed by nobody: it is given a variable to write. So whoever
comes after all that the ops of a launch write comes after the launch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cudasync.engine.hazards.variable import Var

if TYPE_CHECKING:
    from cudasync.engine.hazards.accesses import Accesses


def is_silent(accesses: Accesses) -> bool:
    """True for what writes nothing."""
    (_, updated, written), _, variables = accesses
    return not (updated or written or variables)


def followed(accesses: Accesses, name: str) -> tuple[Accesses, tuple[Var, ...]]:
    """These accesses, with a variable if they write nothing; that variable, if there is one."""
    if not is_silent(accesses):
        return accesses, ()
    over = Var(f"{name}, over")
    return (accesses[0], accesses[1], (over,)), (over,)


class Between:
    """The variables by which one launch comes after one op, and before another.

    Nothing else is touched: what is poisoned of the launch's data poisons neither of these, and is
    not poisoned by them.
    """

    def __init__(self) -> None:
        self.begin = Var("launch, begins")
        # What each op of the launch writes; poisoned where it fails, or some of it does.
        self.ends: list[Var] = []

    def of_one(self) -> tuple[tuple[Var, ...], tuple[Var, ...]]:
        """What one op of the launch reads besides, and what it writes."""
        end = Var("launch, ends")
        self.ends.append(end)
        return (self.begin,), (end,)


def besides(between: Between | None) -> tuple[tuple[Var, ...], tuple[Var, ...]]:
    """What an op reads and writes besides its data."""
    return ((), ()) if between is None else between.of_one()


def tell(op: Any, accesses: Accesses) -> None:
    """Something of `op`, which accesses this and writes a launch's end besides, has failed: who
    comes after that end is told. What is besides stands last."""
    op._damage.fail((((), (), ()), (), op._writes[len(accesses[2]) :]))
