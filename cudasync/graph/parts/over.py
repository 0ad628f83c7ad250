"""Floor 3, parts. By what each op of a launch is known to be over.

An op that writes nothing would be followed by nobody: it is given a variable to write. So whoever
comes after all that the ops of a launch write comes after the launch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

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
