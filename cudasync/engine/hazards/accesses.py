"""Floor 2. `Op.accesses`: the accesses that order an op, with a reason for each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import TypeAlias

    from cudasync.engine.hazards.interval_map import Region
    from cudasync.engine.hazards.variable import Var
    from cudasync.engine.op import Op, Regions

    # Byte ranges; variables that are read; variables that are written.
    Accesses: TypeAlias = tuple[Regions, tuple[Var, ...], tuple[Var, ...]]

_NAMED = "named at the push"


@dataclass(frozen=True, slots=True)
class Accessed:
    """Bytes or a variable that an op reads, writes, or both, with the reason.

    A thing written and not read is overwritten: its old value is not needed.
    """

    what: Region | Var
    reads: bool
    writes: bool
    reason: str


class Reasons(Protocol):
    """An object that knows the reasons for a launch's accesses."""

    def explained(self, accesses: Accesses) -> tuple[Accessed, ...]:
        """`accesses`, each with its reason."""


class Tokens(tuple["Var", ...]):
    """The variables that an op reads, with the reasons for all accesses of the op.

    All launches of a kernel with arguments of the same types share the reasons, and this tuple.
    """

    reasons: Reasons

    @classmethod
    def of(cls, variables: Iterable[Var], reasons: Reasons) -> Tokens:
        made = cls(variables)
        made.reasons = reasons
        return made


def accessed(op: Op) -> tuple[Accessed, ...]:
    """The accesses that order `op`."""
    # An op that took the long way carries the accesses of its launch.
    accesses: Any = getattr(op, "_said", None)
    if accesses is None:
        accesses = (op._regions or ((), (), ())), op._reads, op._writes
    return accesses_explained(accesses)


def accesses_explained(accesses: Accesses) -> tuple[Accessed, ...]:
    """`accesses`, each with its reason."""
    reads = accesses[1]
    if isinstance(reads, Tokens):
        return reads.reasons.explained(accesses)
    return explained(accesses, _NAMED)


def explained(accesses: Accesses, reason: str) -> tuple[Accessed, ...]:
    """`accesses`, all with the same reason."""
    (only_read, updated, written), read, also_written = accesses
    both = [*(each for each in only_read if each in written), *updated]
    rows = [Accessed(each, True, each in both, reason) for each in (*only_read, *updated)]
    rows += [Accessed(each, False, True, reason) for each in written if each not in both]
    return (*rows, *variables_explained(read, also_written, lambda _: reason))


def variables_explained(
    reads: Sequence[Var], writes: Sequence[Var], reason: Any
) -> tuple[Accessed, ...]:
    """The variables that an op accesses; `reason(variable)` gives the reason."""
    return tuple(
        Accessed(each, each in reads, each in writes, reason(each))
        for each in dict.fromkeys((*reads, *writes))
    )
