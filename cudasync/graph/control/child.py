"""Floor 3, control flow. A child: another graph that is launched while a program is recorded.

It is one node of the recording. When the recording is made ready, the child's nodes replace it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from cudasync.graph.control import accesses

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from cudasync.engine.hazards.accesses import Accesses
    from cudasync.graph.node import Node


@dataclass(frozen=True, slots=True)
class Child:
    """A program that runs once, in its place."""

    bodies: tuple[tuple[Node, ...], ...]

    flag: ClassVar[None] = None
    is_loop: ClassVar[bool] = False

    @property
    def name(self) -> str:
        return f"graph of {len(self.bodies[0])}"

    def with_bodies(self, bodies: Sequence[Sequence[Node]]) -> Child:
        return replace(self, bodies=tuple(map(tuple, bodies)))

    def accesses(self) -> Accesses:
        return accesses.of_body(self.bodies[0])

    def turns(self, ask: Callable[[], Any]) -> Iterator[int]:
        """The one body, once."""
        yield 0
