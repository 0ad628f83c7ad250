"""Floor 4, fused functions. The engine of a function that is traced elementwise.

Operations without an argument of the function run once, in the trace, and their results are
constants of the kernel. So they may compute with new arrays, and not with arrays from outside,
which may change: these are refused. They run at once, also during a recording.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from cudasync.engine import current
from cudasync.engine.hazards.variable import resolve

if TYPE_CHECKING:
    from cudasync.array.guards.outside import Outside


class ConstantsOnly:
    """It takes the place of the current engine, and passes on what makes constants."""

    # The attributes that callers ask of an engine before they take a short way.
    _is_direct = _is_plain = False

    def __init__(self, name: str, outside: Outside) -> None:
        engine: Any = current.engine()
        while engine.mode == "recording":
            engine = engine.outside
        self._engine = engine
        self._name = name
        self._outside = outside

    def _push(self, fn: Any, kind: Any, *, reads: Any = (), writes: Any = (), **how: Any) -> Any:
        self._check(reads)
        self._check(writes)
        return self._engine._push(fn, kind, reads=reads, writes=writes, **how)

    def _mark(self, things: Any) -> Any:
        self._check(things)
        return self._engine._mark(things)

    def push(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError(
            f"{self._name} is traced once, so it cannot push an op: push it beside the call"
        )

    push_many = push

    def _check(self, things: Any) -> None:
        """TypeError if one of these is memory of an array outside."""
        _, regions = resolve(things, "reads")
        for each in regions:
            for array in self._outside.arrays:
                low, high = array.region[:2]
                if each[0] < high and low < each[1]:
                    raise TypeError(
                        f"{self._name} reads or writes an array from outside without any of its "
                        "arguments, which would happen once, and not in each call: compute that "
                        "before the call, and pass the result as an argument"
                    )

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)
