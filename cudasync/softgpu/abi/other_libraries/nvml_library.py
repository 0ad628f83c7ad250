"""Cellar, abi. A small libnvidia-ml.so.1 beside the driver.

Programs (cuda.core's `system`, pynvml) query devices through NVML before they use CUDA. The loader
finds this library by its SONAME, as it finds the driver's. All names are exported, because callers
take a missing name for an old library. Functions that are in neither `nvml_calls.py` nor
`nvml_topology.py` return NOT_SUPPORTED, without Python.
"""

from __future__ import annotations

import atexit
import ctypes
import platform
from typing import TYPE_CHECKING, Final

from cudasync.locks import Lock
from cudasync.softgpu.abi.other_libraries import nvml_topology  # noqa: F401 - it enters its calls.
from cudasync.softgpu.abi.other_libraries.nvml_calls import (
    CALLS,
    INVALID_ARGUMENT,
    NOT_SUPPORTED,
    SUCCESS,
    UNINITIALIZED,
    UNKNOWN,
    NvmlFailure,
)
from cudasync.softgpu.abi.other_libraries.nvml_names import NAMES
from cudasync.softgpu.abi.stub.dispatch_table import GUARDED, interrupt_when_freed
from cudasync.softgpu.abi.stub.elf import build
from cudasync.softgpu.abi.stub.slots import Slots, base_of
from cudasync.softgpu.core.driver_types.result_codes import DriverFailure

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from cudasync.softgpu.core.machine import Machine

SONAME: Final = "libnvidia-ml.so.1"
_CONSTANTS: Final = (SUCCESS, UNINITIALIZED, NOT_SUPPORTED)
_STARTS: Final = ("nvmlInit", "nvmlInit_v2", "nvmlInitWithFlags")
_ENDS: Final = "nvmlShutdown"
_TELLS: Final = "nvmlErrorString"
_MESSAGES: Final = {
    SUCCESS: b"Success",
    UNINITIALIZED: b"nvmlInit() has not been called",
    INVALID_ARGUMENT: b"Invalid argument",
    NOT_SUPPORTED: b"the software GPU does not have it",
    4: b"the settings of software GPUs are not changed",
    6: b"Not found",
    7: b"The room for the answer is too small",
    25: b"The structure is of another version than the function",
}


class Nvml:
    """The library's slots, and the number of its initialisations."""

    def __init__(self, machine: Machine, folder: Path) -> None:
        self._machine = machine
        self._uses = 0
        self._lock = Lock()
        # All unsupported functions share one slot, and so one answer.
        here = [*_STARTS, _ENDS, *CALLS, _TELLS]
        numbers = {name: index for index, name in enumerate(here, 1)}
        stub = build(
            {**dict.fromkeys(NAMES, 0), **numbers},
            len(here) + 1,
            _CONSTANTS,
            machine=platform.machine(),
            soname=SONAME,
        )
        path = folder / SONAME
        path.write_bytes(stub.image)
        # Not for the whole process: clients ask for the library by its name.
        library = ctypes.CDLL(str(path), mode=ctypes.RTLD_LOCAL)
        self._slots = Slots(stub, base_of(library, stub), len(here) + 1, _CONSTANTS)
        self._slots.take(self._guard("nothing", lambda: None), ())
        self._slots.answer(0, NOT_SUPPORTED)
        for name in _STARTS:
            count = int(name == "nvmlInitWithFlags")
            self._slots.take(self._guard(name, self._start), (ctypes.c_uint,) * count)
        self._slots.take(self._guard(_ENDS, self._end_use), ())
        for name, (call, types) in CALLS.items():
            self._slots.take(self._guard(name, self._asked, call), types)
        self._slots.take(self._guard(_TELLS, lambda _code: None), (ctypes.c_int,))
        self._slots.lead(numbers[_TELLS], ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int)(_message))
        self._numbers = numbers
        atexit.register(self.end)

    def _start(self, *_flags: int) -> None:
        with self._lock:
            self._uses += 1

    def _end_use(self) -> None:
        with self._lock:
            if not self._uses:
                raise NvmlFailure(UNINITIALIZED)
            self._uses -= 1

    def _asked(self, call: Callable[..., None], *arguments: int) -> None:
        if not self._uses:
            raise NvmlFailure(UNINITIALIZED)
        call(self._machine, *arguments)

    @staticmethod
    def _guard(name: str, call: Callable[..., None], *first: object) -> Callable[..., int]:
        """The function that C calls: any outcome becomes a code, as in the driver's functions."""

        def guarded(*arguments: int) -> int:
            try:
                call(*first, *arguments)
            except NvmlFailure as failure:
                return failure.code
            except DriverFailure:
                return INVALID_ARGUMENT  # A pointer to nothing.
            except KeyboardInterrupt:
                _on_return = interrupt_when_freed()
                return UNKNOWN
            except BaseException:
                return UNKNOWN
            return SUCCESS

        guarded.__qualname__ = f"{GUARDED}{name}"
        return guarded

    def end(self) -> None:
        """The interpreter ends: answer without Python from now on."""
        for name, index in self._numbers.items():
            if name != _TELLS:
                self._slots.answer(index, SUCCESS if name == _ENDS else UNINITIALIZED)
        # There is no error text any more: a null pointer.
        self._slots.answer(self._numbers[_TELLS], SUCCESS)


_texts: Final = {code: ctypes.create_string_buffer(text) for code, text in _MESSAGES.items()}
_other: Final = ctypes.create_string_buffer(b"Unknown error")


def _message(code: int) -> int:
    return ctypes.addressof(_texts.get(code, _other))
