"""Cellar, abi. A shared library in place of one of NVIDIA's, found by its SONAME.

NVIDIA's libraries carry machine code for devices and a runtime of their own, so they do not run
here. A client that is linked with one gets ours, if ours is loaded before. Its functions compute
with NumPy, as commands of the software GPU's streams, over memory whose ranges are checked.

True of each library: a function that is not implemented says so by its name, once, and returns the
library's code for "not supported". No function lets an exception out.
"""

from __future__ import annotations

import atexit
import ctypes
import platform
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cudasync.softgpu.abi.stub.dispatch_table import GUARDED, interrupt_when_freed
from cudasync.softgpu.abi.stub.elf import build
from cudasync.softgpu.abi.stub.slots import Slots, base_of
from cudasync.softgpu.core.driver_types.result_codes import DriverFailure

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from cudasync.softgpu.abi.stub.dispatch_table import FunctionTable

    Call = Callable[..., int | None]

_TYPES: Final[dict[str, Any]] = {
    "p": ctypes.c_uint64,
    "z": ctypes.c_uint64,
    "l": ctypes.c_uint64,
    "i": ctypes.c_int,
    "u": ctypes.c_uint,
    "f": ctypes.c_float,
    "d": ctypes.c_double,
}
SUCCESS: Final = 0


class LibraryFailure(Exception):
    """A call that fails with one of the library's codes; `detail` describes the fault."""

    def __init__(self, code: int, detail: str) -> None:
        self.code = code
        self.detail = detail
        super().__init__(detail)


@dataclass(frozen=True, slots=True)
class Codes:
    """The library's codes for failures that any function may have."""

    not_initialized: int
    invalid_value: int
    execution_failed: int
    not_supported: int


class StandIn:
    """One library; it is loaded when it is created, and stays loaded until the process ends."""

    def __init__(
        self,
        table: FunctionTable,
        soname: str,
        calls: Mapping[str, tuple[str, Call]],
        refused: Iterable[str],
        codes: Codes,
    ) -> None:
        """`calls` has the letters of each function's arguments and the function."""
        self._table = table
        self._codes = codes
        self._told: set[str] = set()
        names = [*calls, *refused]
        constants = (SUCCESS, codes.not_initialized)
        # One more slot, because a library has at least one.
        count = len(names) + 1
        numbers = {name: index for index, name in enumerate(names)}
        stub = build(
            numbers, count, constants, machine=platform.machine(), soname=soname, version=soname
        )
        with tempfile.TemporaryDirectory(prefix="cudasync-") as folder:
            path = Path(folder) / soname
            path.write_bytes(stub.image)
            library = ctypes.CDLL(str(path), mode=ctypes.RTLD_LOCAL)
        self.handle = library._handle
        self._slots = Slots(stub, base_of(library, stub), count, constants)
        for name in names:
            letters, call = calls.get(name, ("", self._refusal(name)))
            types = tuple(_TYPES[letter] for letter in letters)
            self._slots.take(self._guard(name, call), types)
        self._numbers = numbers
        atexit.register(self.end)

    def _refusal(self, name: str) -> Call:
        def refuse() -> int:
            raise LibraryFailure(self._codes.not_supported, "the software GPU does not model it")

        refuse.__name__ = name
        return refuse

    def _guard(self, name: str, call: Call) -> Callable[..., int]:
        codes = self._codes

        def guarded(*arguments: Any) -> int:
            if self._table.silenced is not None:
                return codes.not_initialized
            try:
                return call(*arguments) or SUCCESS
            except LibraryFailure as failure:
                self._tell(name, failure.detail)
                return failure.code
            except DriverFailure as failure:
                self._table.details.note(failure)
                self._tell(name, failure.detail)
                is_value = failure.code == 1
                return codes.invalid_value if is_value else codes.execution_failed
            except KeyboardInterrupt:
                _on_return = interrupt_when_freed()
                return codes.execution_failed
            except BaseException as problem:
                self._tell(name, repr(problem))
                return codes.execution_failed

        guarded.__qualname__ = f"{GUARDED}{name}"
        return guarded

    def _tell(self, name: str, detail: str) -> None:
        """Report the detail that a code cannot express; once."""
        sentence = f"cudasync software GPU: {name}: {detail}\n"
        if sentence not in self._told:
            self._told.add(sentence)
            sys.stderr.write(sentence)

    def end(self) -> None:
        """The interpreter ends: answer without Python from now on."""
        for name, index in self._numbers.items():
            ends = "Destroy" in name
            self._slots.answer(index, SUCCESS if ends else self._codes.not_initialized)
