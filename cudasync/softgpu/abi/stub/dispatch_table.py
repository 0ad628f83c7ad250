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
from dataclasses import replace
from functools import cache, partial
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any, Final

from cudasync.locks import Lock
from cudasync.softgpu.abi.stub import registry
from cudasync.softgpu.abi.stub.error_strings import Details
from cudasync.softgpu.abi.stub.exported_symbols import key_of
from cudasync.softgpu.abi.stub.function_versions import form
from cudasync.softgpu.abi.stub.signatures import argument_types, c_signature
from cudasync.softgpu.abi.stub.slots import Slots
from cudasync.softgpu.abi.stub.unsupported_functions import why_not
from cudasync.softgpu.core.driver_types.result_codes import (
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
    from collections.abc import Callable

    from cudasync.softgpu.abi.stub.elf import Stub
    from cudasync.softgpu.abi.stub.exported_symbols import Exports, Key
    from cudasync.softgpu.core.machine import Machine

SLOT_COUNT: Final = 2048
CONSTANTS: Final = (SUCCESS, NOT_INITIALIZED, DEINITIALIZED)
"""What the stub can answer by itself."""

GUARDED: Final = "FunctionTable._guard."
"""How the qualified names of what is called from C begin: see `catch_early_interrupts`."""

# What each call goes through, with as many parameters as it has: to take and pass on any number
# of them costs as much as a short call does.
_GUARD: Final = f"""
def guarded({{parameters}}):
    try:
        if not (machine.is_initialized or is_early):
            return {NOT_INITIALIZED}
        if waiting:
            run_deferred()
        return call(machine{{arguments}}) or 0
    except BaseException as problem:
        code, _on_return = outcome(problem)
        return code
"""

# And what clients wrap it in: making the right context current.
_ENDS_OBJECTS: Final = re.compile(
    "Free|Destroy|Unload|Release|Unregister|Ctx(Get|Set|Push|Pop)Current"
)


class FunctionTable:
    """The slots of one loaded stub, filled for one machine."""

    def __init__(
        self,
        machine: Machine,
        stub: Stub,
        base: int,
        exported: Exports,
        *,
        report: bool,
    ) -> None:
        self.machine = machine
        self.details = Details(report=report)
        self._slots = Slots(stub, base, SLOT_COUNT, CONSTANTS)
        self._symbols = exported.slots
        self._addresses: dict[Key, int] = {}
        self._lasting: set[int] = set()
        self._lock = Lock()
        self._names: list[str] = []
        self.asked: set[tuple[str, int]] = set()
        self._told: set[str] = set()
        # What a function answers without being called, by its name: after a fork and at the end.
        self.silenced: Callable[[str], int] | None = None
        # What else was loaded lives as long.
        self.nvml: object = None
        for key in exported.keys:
            self._new_slot(key)

    def address(self, name: str, version: int, *, per_thread: bool = False) -> int:
        """The trampoline for a function as a client of `version` calls it; 0 if no slot is left."""
        key = key_of(name, version, per_thread=per_thread)
        with self._lock:
            found = self._addresses.get(key)
            return found if found is not None else self._new_slot(key)

    def enter(self, name: str, entry: registry.Entry | None, why: str) -> int:
        """A trampoline for a function that is no driver's; without an entry it refuses, and why."""
        with self._lock:
            if entry is None:
                return self._fill_slot(name, self._refusal(name, why), ())
            return self._fill_slot(name, *self._callback(name, entry))

    def symbol_address(self, symbol: str) -> int:
        """The trampoline of a symbol that the library exports; KeyError for another."""
        return self._slots.address(self._symbols[symbol])

    def _new_slot(self, key: Key) -> int:
        name, version, per_thread = key
        entry = registry.exact(name, version)
        if entry is not None and per_thread:
            entry = replace(entry, call=self.machine.streams.per_thread(entry.call))
        index = len(self._names)
        address = self._fill_slot(name, *self._callback(name, entry))
        if address:
            if entry is not None and entry.before_init:
                self._lasting.add(index)
            self._addresses[key] = address
        return address

    def _fill_slot(self, name: str, function: Callable[..., int], types: tuple[Any, ...]) -> int:
        address = self._slots.take(function, types)
        if address:
            self._names.append(name)
        return address

    def _callback(
        self, name: str, entry: registry.Entry | None
    ) -> tuple[Callable[..., int], tuple[Any, ...]]:
        """What a call of a function calls, and with what."""
        signature = "" if entry is None else entry.signature or c_signature(name)
        if entry is None or signature is None:
            # Or the bindings do not know it, so nobody but a foreign client may ask.
            return self._refusal(name), ()
        types = argument_types(signature)
        return self._guard(entry, len(types)), types

    def _guard(self, entry: registry.Entry, count: int) -> Callable[..., int]:
        """The Python side of a call of `count` arguments: any outcome becomes a result code."""
        executor = self.machine.executor
        scope = {
            "machine": self.machine,
            "call": entry.call,
            "waiting": executor.deferred.actions,
            "run_deferred": executor.deferred.run,
            "is_early": entry.before_init,
            "outcome": partial(self._outcome, entry.name),
        }
        # A copy of the code for each function: the interpreter tunes code to what it calls.
        guarded = FunctionType(_guard_code(count).replace(), scope)
        guarded.__qualname__ = f"{GUARDED}{entry.name}"
        return guarded

    def _outcome(self, name: str, problem: BaseException) -> tuple[int, object]:
        """The code for what a call raised, and what its frame has to hold until it is left."""
        if isinstance(problem, DriverFailure):
            self.details.note(problem)
            return problem.code, None
        if isinstance(problem, KeyboardInterrupt):
            # It can not pass through C code, so it is raised again behind it.
            return UNKNOWN, interrupt_when_freed()
        self.details.note(DriverFailure(UNKNOWN, f"{name}: {problem!r}"))
        return UNKNOWN, None

    def _refusal(self, name: str, why: str = "") -> Callable[[], int]:
        def refuse() -> int:
            try:
                sentence = f"{name} is not supported: {why or why_not(name)}"
                if name not in self._told:
                    self._told.add(name)
                    sys.stderr.write(f"cudasync software GPU: {sentence}\n")
                self.details.note(DriverFailure(NOT_SUPPORTED, sentence))
            except BaseException:
                return UNKNOWN
            return NOT_SUPPORTED

        return refuse

    def end(self) -> None:
        """The interpreter ends: answer without Python from now on.

        What ends an object succeeds, since nothing is left of any; the rest is DEINITIALIZED.
        """
        self.silenced = _at_end
        for index, name in enumerate(self._names):
            self._slots.answer(index, _at_end(name))
        self.machine.end()

    def disown(self) -> None:
        """This is a forked child: what needs a device is NOT_INITIALIZED, without Python."""
        self.silenced = lambda _name: NOT_INITIALIZED
        for index in range(len(self._names)):
            if index not in self._lasting:
                self._slots.answer(index, NOT_INITIALIZED)

    def get_proc_address(self, name: str, version: int, *, per_thread: bool = False) -> int:
        """As `address`, with the driver's codes: what no driver has is NOT_FOUND; 0: not yet then.

        A symbol of the library's, with what stands behind the name, is that function.
        """
        if not name:
            raise DriverFailure(INVALID_VALUE, "no function name")
        if not name.startswith("cu") or name not in self._symbols:
            raise DriverFailure(NOT_FOUND, f"{name} is no function of the driver")
        self.asked.add((name, version))
        if re.search("_v[0-9]|_pt[sd][sz]$", name):
            return self._slots.address(self._symbols[name])
        if form(name, version) is None:
            return 0
        address = self.address(name, version, per_thread=per_thread)
        if not address:
            raise DriverFailure(NOT_FOUND, name)
        return address


def _at_end(name: str) -> int:
    """What a function answers once the interpreter ends."""
    return DEINITIALIZED if _ENDS_OBJECTS.search(name) is None else SUCCESS


@cache
def _guard_code(count: int) -> CodeType:
    """`_GUARD` for a call of `count` arguments, compiled: hundreds of functions, a dozen counts."""
    names = "".join(f", a{index}" for index in range(count))
    text = _GUARD.format(parameters=names[2:], arguments=names)
    # In this file, so that whoever looks for the caller's line passes over it.
    (code,) = (
        constant
        for constant in compile(text, __file__, "exec").co_consts
        if isinstance(constant, CodeType)
    )
    return code


def catch_early_interrupts() -> None:
    """Keep a Ctrl-C that comes in the first instruction of a callback, before its `try`.

    Python then drops it, after a call of `sys.unraisablehook`; everything else that hook is given
    goes on to whoever had it before.
    """
    before = sys.unraisablehook

    def hook(unraisable: sys.UnraisableHookArgs) -> None:
        place = getattr(unraisable.object, "__qualname__", "")
        if unraisable.exc_type is KeyboardInterrupt and place.startswith(GUARDED):
            _on_return = interrupt_when_freed()
        else:
            before(unraisable)

    sys.unraisablehook = hook


def interrupt_when_freed() -> object:
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
