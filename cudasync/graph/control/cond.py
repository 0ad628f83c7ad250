"""Floor 3, control flow. `with g.cond(flag) as chosen:` runs its block if the flag is true.

`with chosen.otherwise():` runs its block if the flag is false.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from cudasync.graph.control import accesses

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from cudasync.engine.hazards.accesses import Accesses
    from cudasync.graph.control.flag import Flag
    from cudasync.graph.node import Node


@dataclass(frozen=True, slots=True)
class Cond:
    """One or two programs: the first runs if the flag is true, the second if it is not."""

    flag: Flag
    bodies: tuple[tuple[Node, ...], ...] = ()

    name: ClassVar[str] = "cond"
    is_loop: ClassVar[bool] = False

    def with_bodies(self, bodies: Sequence[Sequence[Node]]) -> Cond:
        return replace(self, bodies=tuple(map(tuple, bodies)))

    def said_of(self, number: int) -> str:
        """What a message says of this round, which is the only one."""
        return self.name

    def accesses(self) -> Accesses:
        return accesses.decided(self.flag, [accesses.of_body(body) for body in self.bodies])

    def turns(self, ask: Callable[[], bool]) -> Iterator[int]:
        """The body that runs, if any."""
        if ask():
            yield 0
        elif len(self.bodies) > 1:
            yield 1
