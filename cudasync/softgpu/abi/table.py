"""Cellar. The function table: every address that the stub hands out, and what stands behind it.

A client asks `cuGetProcAddress` for (name, version) and gets a trampoline of the stub, never the
address of a Python callback itself. So all of them can be turned at once to code that returns a
constant: when the interpreter ends (DEINITIALIZED) and in a forked child (NOT_INITIALIZED,
which is what CUDA gives there).

True of every callback: it returns a result code whatever happens in Python, and prints nothing.
"""

from __future__ import annotations

import ctypes
import re
import sys
import threading
from typing import TYPE_CHECKING, Any, Final

from cudasync.softgpu.abi import registry
from cudasync.softgpu.abi.elf import TRAMPOLINE_BYTES
from cudasync.softgpu.abi.messages import Details
from cudasync.softgpu.abi.signatures import argument_types, c_signature
from cudasync.softgpu.core.results import (
    DEINITIALIZED,
    INVALID_VALUE,
    NOT_FOUND,
    NOT_INITIALIZED,
    NOT_SUPPORTED,
    SUCCESS,
    UNKNOWN,
    DriverFailure,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cudasync.softgpu.abi.elf import Stub
    from cudasync.softgpu.core.machine import Machine

SLOT_COUNT: Final = 2048
CONSTANTS: Final = (SUCCESS, NOT_INITIALIZED, DEINITIALIZED)
"""What the stub can answer by itself."""

_ENDS_OBJECTS: Final = re.compile("Free|Destroy|Unload|Release|Unregister")


class FunctionTable:
    """The slots of one loaded stub, filled for one machine."""

    def __init__(self, machine: Machine, stub: Stub, base: int, names: Sequence[str]) -> None:
        self.machine = machine
        self.details = Details()
        self._trampolines = base + stub.trampolines_offset
        self._constants = base + stub.constants_offset
        self._slots = (ctypes.c_uint64 * SLOT_COUNT).from_address(base + stub.slots_offset)
        self._callbacks: list[Any] = []  # Keeps alive what the slots point to.
        self._addresses: dict[tuple[str, int], int] = {}
        self._lasting: set[int] = set()
        self._lock = threading.Lock()
        self._names: list[str] = []
        self._told: set[str] = set()
        for name in names:
            self._new_slot(name, registry.ANY_VERSION)

    def address(self, name: str, version: int) -> int:
        """The trampoline for a function as a client of `version` calls it; 0 if no slot is left."""
        entry = registry.find(name, version)
        key = (name, entry.version if entry is not None else registry.ANY_VERSION)
        with self._lock:
            found = self._addresses.get(key)
            return found if found is not None else self._new_slot(*key)

    def _new_slot(self, name: str, version: int) -> int:
        index = len(self._names)
        if index == SLOT_COUNT:
            return 0
        self._names.append(name)
        entry = registry.find(name, version)
        callback = self._make_callback(name, entry)
        self._callbacks.append(callback)
        if entry is not None and entry.before_init:
            self._lasting.add(index)
        self._slots[index] = ctypes.cast(callback, ctypes.c_void_p).value or 0
        address = self._trampolines + TRAMPOLINE_BYTES * index
        self._addresses[(name, version)] = address
        return address

    def _make_callback(self, name: str, entry: registry.Entry | None) -> Any:
        if entry is None:
            return ctypes.CFUNCTYPE(ctypes.c_int)(self._refusal(name))
        signature = entry.signature or c_signature(name)
        if signature is None:
            # The bindings do not know it, so nobody but a foreign client may ask.
            return ctypes.CFUNCTYPE(ctypes.c_int)(self._refusal(name))
        prototype = ctypes.CFUNCTYPE(ctypes.c_int, *argument_types(signature))
        return prototype(self._guard(entry))

    def _guard(self, entry: registry.Entry) -> Callable[..., int]:
        """The Python side of a call: any outcome becomes a result code."""
        machine = self.machine
        call = entry.call
        details = self.details
        before_init = entry.before_init
        deferred = machine.executor.deferred

        def guarded(*arguments: int) -> int:
            try:
                if not (machine.is_initialized or before_init):
                    return NOT_INITIALIZED
                if deferred:
                    deferred.run()
                return call(machine, *arguments) or 0
            except DriverFailure as failure:
                details.note(failure)
                return failure.code
            except KeyboardInterrupt:
                # It can not pass through C code, so it is raised again behind it.
                _on_return = _interrupt_when_freed()
                return UNKNOWN
            except BaseException as problem:
                details.note(DriverFailure(UNKNOWN, f"{entry.name}: {problem!r}"))
                return UNKNOWN

        return guarded

    def _refusal(self, name: str) -> Callable[[], int]:
        def refuse() -> int:
            try:
                if name not in self._told:
                    self._told.add(name)
                    sys.stderr.write(f"cudasync software GPU: {name} is not supported\n")
                self.details.note(DriverFailure(NOT_SUPPORTED, f"{name} is not supported"))
            except BaseException:
                return UNKNOWN
            return NOT_SUPPORTED

        return refuse

    def end(self) -> None:
        """The interpreter ends: answer without Python from now on.

        What ends an object succeeds, since nothing is left of any; the rest is DEINITIALIZED.
        """
        for index, name in enumerate(self._names):
            is_end = _ENDS_OBJECTS.search(name) is not None
            self._point(index, SUCCESS if is_end else DEINITIALIZED)

    def disown(self) -> None:
        """This is a forked child: what needs a device is NOT_INITIALIZED, without Python."""
        for index in range(len(self._names)):
            if index not in self._lasting:
                self._point(index, NOT_INITIALIZED)

    def _point(self, index: int, constant: int) -> None:
        self._slots[index] = self._constants + TRAMPOLINE_BYTES * CONSTANTS.index(constant)

    def get_proc_address(self, name: str, version: int) -> int:
        """As `address`, with the driver's codes: names that are no driver function are unknown."""
        if not name:
            raise DriverFailure(INVALID_VALUE, "no function name")
        if not name.startswith("cu"):
            raise DriverFailure(NOT_FOUND, name)
        address = self.address(name, version)
        if not address:
            raise DriverFailure(NOT_FOUND, name)
        return address


def catch_early_interrupts() -> None:
    """Keep a Ctrl-C that comes in the first instruction of a callback, before its `try`.

    Python then drops it, after a call of `sys.unraisablehook`; everything else that hook is given
    goes on to whoever had it before.
    """
    before = sys.unraisablehook
    callbacks = f"{FunctionTable.__qualname__}._guard."

    def hook(unraisable: sys.UnraisableHookArgs) -> None:
        place = getattr(unraisable.object, "__qualname__", "")
        if unraisable.exc_type is KeyboardInterrupt and place.startswith(callbacks):
            _on_return = _interrupt_when_freed()
        else:
            before(unraisable)

    sys.unraisablehook = hook


def _interrupt_when_freed() -> object:
    """An object that sets the interpreter's interrupt flag when its last owner lets go.

    Held by a local variable, that is when its function has returned to C: the flag is then seen
    by the first Python code to run, the caller's. Any earlier, it would be seen in the callback.
    """
    capsule: object = _new_capsule(1, None, _SET_INTERRUPT)
    return capsule


_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype = ctypes.py_object
_new_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
# A capsule's destructor takes one argument, and this function none: harmless in both psABIs.
_SET_INTERRUPT: Final = ctypes.cast(ctypes.pythonapi.PyErr_SetInterrupt, ctypes.c_void_p).value
