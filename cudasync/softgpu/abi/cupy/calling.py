"""Cellar, abi. Calls of the functions of CuPy's runtime module: their errors, their arguments.

True of each function: it raises CuPy's CUDARuntimeError with a sentence about the failure. After a
fork and at the end of the process, it answers as the driver's functions do.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, Final

from cudasync.softgpu.abi.runtime.chapters import entries
from cudasync.softgpu.core.driver_types.result_codes import SUCCESS, DriverFailure

if TYPE_CHECKING:
    from collections.abc import Callable

    from cudasync.softgpu.abi.stub.dispatch_table import FunctionTable
    from cudasync.softgpu.core.machine import Machine

_RANGES: Final = {
    "i": (-(2**31), 2**31, "int"),
    "u": (0, 2**32, "unsigned int"),
    "l": (-(2**63), 2**63, "intptr_t"),
    "z": (0, 2**64, "size_t"),
}


class Runtime:
    """The basis of CuPy's functions: the table of functions, and the class of its errors."""

    def __init__(self, table: FunctionTable, error: type[Exception]) -> None:
        self.table = table
        self.machine: Machine = table.machine
        self.error = error
        self._deferred = self.machine.executor.deferred

    def call(self, name: str, *arguments: int) -> None:
        """Call a function of the runtime API; CUDARuntimeError if it fails."""
        code = self.result(name, *arguments)
        if code:
            raise self.failure(code)

    def result(self, name: str, *arguments: int) -> int:
        """As `call`, for functions whose code is no error: only an exception is a failure."""
        silenced = self.table.silenced
        if silenced is not None:
            return silenced(name)
        if self._deferred.actions:
            self._deferred.run()
        try:
            return entries()[name].call(self.machine, *arguments) or SUCCESS
        except DriverFailure as failure:
            self.table.details.note(failure)
            raise self.failure(failure.code, failure.detail) from None

    def failure(self, code: int, detail: str = "") -> Exception:
        """CuPy's error for a code."""
        problem = self.error(code)
        if detail:
            problem.args = (f"{problem.args[0]}: {detail}",)
        return problem


def converted(letters: str, call: Callable[..., Any]) -> Callable[..., Any]:
    """The function for Python callers: arguments are converted to C types, or refused."""

    def checked(*arguments: Any) -> Any:
        return call(*(_as_c(each, of) for each, of in zip(arguments, letters, strict=False)))

    return checked


def _as_c(value: Any, letter: str) -> Any:
    if letter not in _RANGES:
        return value
    # As in Cython, which also accepts floats.
    number = int(value) if isinstance(value, float) else operator.index(value)
    low, high, name = _RANGES[letter]
    if not low <= number < high:
        raise OverflowError(f"{number} does not fit into {name}")
    return number
