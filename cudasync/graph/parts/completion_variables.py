"""Floor 3, parts. Variables that show when the ops of a launch are over.

Nothing could be ordered behind an op that writes nothing, so it gets a variable to write. Then an
op that comes after everything that a launch writes comes after the launch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cudasync.engine.hazards.variable import Var

if TYPE_CHECKING:
    from cudasync.engine.hazards.accesses import Accesses
    from cudasync.engine.hazards.damage import Damage


def is_silent(accesses: Accesses) -> bool:
    """True for accesses without writes."""
    (_, updated, written), _, variables = accesses
    return not (updated or written or variables)


def followed(accesses: Accesses, name: str) -> tuple[Accesses, tuple[Var, ...]]:
    """These accesses, with a variable if they have no writes, and that variable, if there is
    one."""
    if not is_silent(accesses):
        return accesses, ()
    over = Var(f"{name}, over")
    return (accesses[0], accesses[1], (over,)), (over,)


class Between:
    """The variables that order one launch after one op, and before another.

    They are apart from the launch's data: poison of the data does not reach the two ops, and poison
    of the ops does not reach the data.
    """

    def __init__(self) -> None:
        self.begin = Var("launch, begins")
        # A variable for each op of the launch; poisoned if the op fails, also in part.
        self.ends: list[Var] = []

    def of_one(self) -> tuple[tuple[Var, ...], tuple[Var, ...]]:
        """The additional reads and writes of one op of the launch."""
        end = Var("launch, ends")
        self.ends.append(end)
        return (self.begin,), (end,)


def besides(between: Between | None) -> tuple[tuple[Var, ...], tuple[Var, ...]]:
    """The additional reads and writes of an op."""
    return ((), ()) if between is None else between.of_one()


def fail(damage: Damage, accesses: Accesses, over: tuple[Var, ...]) -> None:
    """Note in `damage` that a step with these accesses has failed, or was left out. A step without
    writes damages the variables that show its end, `over`."""
    damage.fail(accesses)
    if is_silent(accesses):
        damage.fail((((), (), ()), (), over))


def tell(damage: Damage, op: Any, accesses: Accesses) -> None:
    """Note in `damage` that the launch of `op`, which has these accesses and failed in part, has a
    failed end. The variable of the end is the last of the op's writes."""
    damage.fail((((), (), ()), (), op._writes[len(accesses[2]) :]))
