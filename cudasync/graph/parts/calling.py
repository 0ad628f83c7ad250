"""Floor 3, parts. Functions that are called one after the other, with next to nothing around each.

Of a loop that calls empty functions a tenth is the loop, so each round of this one calls several.
Which of them failed is found afterwards, by the rounds that are left and by the line that the last
one came to: what is called pays nothing for that.

Functions that are each called by one and the same other, which says that it `takes_many`, are
called inside of one call of it.
"""

from __future__ import annotations

from functools import cache, partial
from operator import length_hint
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    Function = Callable[..., Any]

# In a round. More are not quicker (2026-11-26: 0.91 of a plain loop with 4, 0.87 with 32 and 64).
AT_ONCE = 32
# Of the compiled function: the line of the first call.
_FIRST_LINE = 3


class Calls:
    """Functions in their order. Any number of threads may call them at once."""

    def __init__(self, functions: Sequence[Function]) -> None:
        # Each by itself.
        self.functions = tuple(functions)
        self._around, together = _taken_out(self.functions)
        whole = len(functions) - len(functions) % AT_ONCE
        self._rounds = [together[at : at + AT_ONCE] for at in range(0, whole, AT_ONCE)]
        self._rest = together[whole:]
        self._call_rounds = _compiled(AT_ONCE)

    def __len__(self) -> int:
        return len(self.functions)

    def begin(self) -> tuple[Iterator[Any], Iterator[Function]]:
        """How far one way through all of them is: for `go`, and for `failed_at`."""
        return iter(self._rounds), iter(self._rest)

    def go(self, rounds: Iterator[Any], rest: Iterator[Function]) -> None:
        """Call each. Raises what the first that fails raises; then the others are not called."""
        if self._around is None:
            self._go(rounds, rest)
        else:
            self._around(self._go, rounds, rest)

    def _go(self, rounds: Iterator[Any], rest: Iterator[Function]) -> None:
        fn: Any = None
        try:
            self._call_rounds(rounds)
            for fn in rest:
                fn()
        finally:
            # An exception refers to this frame.
            fn = None

    def failed_at(
        self, rounds: Iterator[Any], rest: Iterator[Function], error: BaseException
    ) -> int:
        """The place of the one that raised `error` in `go`, whose traceback begins in the caller of
        that. From then on it begins in the function: nothing of the rounds is kept by it."""
        trace = error.__traceback__
        assert trace is not None
        while trace.tb_frame.f_code is not Calls._go.__code__:
            trace = trace.tb_next
            assert trace is not None
        called = trace.tb_next
        left = length_hint(rest)
        if left < len(self._rest):
            error.__traceback__ = called
            return len(self) - left - 1
        assert called is not None
        assert called.tb_frame.f_code is self._call_rounds.__code__
        error.__traceback__ = called.tb_next
        done = len(self._rounds) - length_hint(rounds) - 1
        return done * AT_ONCE + called.tb_lineno - _FIRST_LINE


def _taken_out(functions: tuple[Function, ...]) -> tuple[Any, tuple[Function, ...]]:
    """What all of these are called by, if they are, and what it calls for each."""
    around = functions[0].func if functions and isinstance(functions[0], partial) else None
    if len(functions) < 2 or not getattr(around, "takes_many", False):
        return None, functions
    inside: list[Function] = []
    for each in functions:
        if not isinstance(each, partial) or each.func is not around or each.keywords:
            return None, functions
        inside.append(
            each.args[0] if len(each.args) == 1 else partial(each.args[0], *each.args[1:])
        )
    return around, tuple(inside)


@cache
def _compiled(count: int) -> Any:
    """A function that calls what the tuples of an iterator have, which are of this length."""
    names = [f"f{number}" for number in range(count)]
    lines = ["def call(rounds):", f"    for {', '.join(names)} in rounds:"]
    lines += [f"        {name}()" for name in names]
    namespace: dict[str, Any] = {}
    exec(compile("\n".join(lines), "<functions of a graph>", "exec"), namespace)
    return namespace["call"]
