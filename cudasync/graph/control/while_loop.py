"""Floor 3, control flow. `with g.while_loop(flag):` repeats its block while the flag is true."""

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
class WhileLoop:
    """A program that runs again while the flag is true; the flag is read before each round."""

    flag: Flag
    bodies: tuple[tuple[Node, ...], ...] = ()

    name: ClassVar[str] = "while_loop"
    is_loop: ClassVar[bool] = True

    def with_bodies(self, bodies: Sequence[Sequence[Node]]) -> WhileLoop:
        return replace(self, bodies=tuple(map(tuple, bodies)))

    def said_of(self, number: int) -> str:
        """What a message says of this round."""
        return f"round {number} of {self.name}"

    def accesses(self) -> Accesses:
        return accesses.decided(self.flag, [accesses.of_body(body) for body in self.bodies])

    def turns(self, ask: Callable[[], bool]) -> Iterator[int]:
        """The bodies that run, one after the other."""
        while ask():
            yield 0
