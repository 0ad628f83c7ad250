"""Floor 3, control flow. `with g.repeat(n):` repeats its block n times."""

from __future__ import annotations

from dataclasses import dataclass, replace
from operator import index
from typing import TYPE_CHECKING, Any, ClassVar

from cudasync.graph.control import accesses

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from cudasync.driver import DeviceBuffer
    from cudasync.engine.hazards.accesses import Accesses
    from cudasync.graph.node import Node


@dataclass(frozen=True, slots=True)
class Repeat:
    """A program that runs a number of times that is known in the recording."""

    times: int
    bodies: tuple[tuple[Node, ...], ...] = ()
    # For a device's loop: the number of remaining rounds. One launch at a time counts there.
    counter: DeviceBuffer | None = None
    # A round of the body does so many rounds of the recorded one, behind the `before` rounds that
    # nodes before the block do: see `passes/unroll`.
    joined: int = 1
    before: int = 0

    flag: ClassVar[None] = None
    is_loop: ClassVar[bool] = True

    @classmethod
    def of(cls, times: Any) -> Repeat:
        """A repeat of `times`. Raises TypeError unless it is an integer, ValueError if it is
        negative."""
        if isinstance(times, bool) or hasattr(times, "region") or not hasattr(times, "__index__"):
            raise TypeError(
                f"repeat takes an integer, not {type(times).__name__}: if an array decides, use "
                f"g.while_loop(flag)"
            )
        if index(times) < 0:
            raise ValueError(f"repeat takes a number from 0 on, not {index(times)}")
        return cls(index(times))

    @property
    def name(self) -> str:
        return f"repeat({self.before + self.times * self.joined})"

    def said_of(self, number: int) -> str:
        """What a message says of this round."""
        first = self.before + number * self.joined
        if self.joined == 1:
            return f"round {first} of {self.name}"
        return f"rounds {first} to {first + self.joined - 1} of {self.name}"

    def with_bodies(self, bodies: Sequence[Sequence[Node]]) -> Repeat:
        return replace(self, bodies=tuple(map(tuple, bodies)))

    def accesses(self) -> Accesses:
        # For any count: later rounds do not read from outside what the first round overwrites.
        if not self.times:
            return accesses.NOTHING
        inside = accesses.of_body(self.bodies[0])
        return inside if self.counter is None else accesses.counted(inside, self.counter)

    def turns(self, ask: Callable[[], bool]) -> Iterator[int]:
        """The bodies that run, one after the other."""
        for _ in range(self.times):
            yield 0
