"""Floor 3, parts. Calls functions one after the other, with next to no cost around each.

In a loop over empty functions, the loop itself takes a tenth of the time. So each round of this
loop calls several. The remaining rounds, and the last line of the traceback, show afterwards which
function failed; the calls pay nothing for that.

If one function that says `takes_many` is the caller of all of them, they are called inside of one
call of it.
"""

from __future__ import annotations

from functools import cache, partial
from operator import length_hint
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    Function = Callable[..., Any]

# A round's calls. More are not quicker (2026-11-26: 0.91 of a plain loop with 4, 0.87 with 32 and
# 64).
AT_ONCE = 32
# The line of the first call in the compiled function.
_FIRST_LINE = 3


class Calls:
    """Functions in their order. Any number of threads may call them at once."""

    def __init__(self, functions: Sequence[Function]) -> None:
        # The functions with their common caller, for calls one by one.
        self.functions = tuple(functions)
        self._around, together = _taken_out(self.functions)
        whole = len(functions) - len(functions) % AT_ONCE
        self._rounds = [together[at : at + AT_ONCE] for at in range(0, whole, AT_ONCE)]
        self._rest = together[whole:]
        self._call_rounds = _compiled(AT_ONCE)

    def __len__(self) -> int:
        return len(self.functions)

    def begin(self) -> tuple[Iterator[Any], Iterator[Function]]:
        """The iterators of one pass through all functions, for `go` and `failed_at`."""
        return iter(self._rounds), iter(self._rest)

    def go(self, rounds: Iterator[Any], rest: Iterator[Function]) -> None:
        """Call each function. The first exception ends the pass and is raised."""
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
            # An exception's traceback refers to this frame.
            fn = None

    def failed_at(
        self, rounds: Iterator[Any], rest: Iterator[Function], error: BaseException
    ) -> int | None:
        """The index of the function that raised `error` in `go`. The error's traceback must begin
        in the caller of `go`. Afterwards it begins in the function, so it keeps nothing of the
        rounds alive. None for an exception of a signal handler, outside of the functions."""
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_code is not Calls._go.__code__:
            trace = trace.tb_next
        if trace is None:
            return None
        called = trace.tb_next
        left = length_hint(rest)
        if left < len(self._rest):
            error.__traceback__ = called
            return len(self) - left - 1
        if called is None or called.tb_frame.f_code is not self._call_rounds.__code__:
            # The frame of a signal handler, if that is a function of Python.
            return None
        if called.tb_lineno < _FIRST_LINE:
            return None
        error.__traceback__ = called.tb_next
        done = len(self._rounds) - length_hint(rounds) - 1
        return done * AT_ONCE + called.tb_lineno - _FIRST_LINE


def _taken_out(functions: tuple[Function, ...]) -> tuple[Any, tuple[Function, ...]]:
    """The common caller of all these functions, or None, and the function that it calls for
    each."""
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
    """A function that calls the functions in an iterator's tuples, which have this length."""
    names = [f"f{number}" for number in range(count)]
    lines = ["def call(rounds):", f"    for {', '.join(names)} in rounds:"]
    lines += [f"        {name}()" for name in names]
    namespace: dict[str, Any] = {}
    exec(compile("\n".join(lines), "<functions of a graph>", "exec"), namespace)
    return namespace["call"]
