"""Cellar. The function table: every address that the stub hands out, and the function behind it.

A client asks `cuGetProcAddress` for (name, version). It gets a trampoline of the stub, never the
address of a Python callback. So all trampolines can be switched at once to code that returns a
constant: DEINITIALIZED when the interpreter ends, and NOT_INITIALIZED in a forked child, as in
CUDA.

True of every callback: it returns a result code whatever happens in Python, and prints nothing.
"""

from __future__ import annotations

import ctypes
import re
import sys
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
"""The result codes that the stub can return by itself."""

GUARDED: Final = "FunctionTable._guard."
"""Prefix of the qualified names of functions that C calls: see `catch_early_interrupts`."""

# The wrapper of each call, with exactly its number of parameters: passing on a variable number of
# arguments costs as much as a short call.
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

# Calls that end an object, and calls that clients put around them to make a context current.
_ENDS_OBJECTS: Final = re.compile(
    "Free|Destroy|Unload|Release|Unregister|Ctx(Get|Set|Push|Pop)Current"
)


_HAS_SUFFIX: Final = re.compile("_v[0-9]|_pt[sd][sz]$")


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
        # The answer of each function without a call, by its name: after a fork and at the end.
        self.silenced: Callable[[str], int] | None = None
        # Libraries that were loaded with this one live as long.
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
        """A trampoline for a function outside the driver; without `entry` it refuses with `why`."""
        with self._lock:
            if entry is None:
                return self._fill_slot(name, self._refusal(name, why), ())
            return self._fill_slot(name, *self._callback(name, entry))

    def symbol_address(self, symbol: str) -> int:
        """The trampoline of an exported symbol; KeyError if the library does not export it."""
        return self._slots.address(self._symbols[symbol])

    def _new_slot(self, key: Key) -> int:
        name, version, per_thread = key
        entry = registry.exact(name, version)
        index = len(self._names)
        address = self._fill_slot(name, *self._callback(name, entry, per_thread=per_thread))
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
        self, name: str, entry: registry.Entry | None, *, per_thread: bool = False
    ) -> tuple[Callable[..., int], tuple[Any, ...]]:
        """The Python function behind a driver function, and its argument types."""
        signature = "" if entry is None else entry.signature or c_signature(name)
        if entry is None or signature is None:
            # Or the bindings do not know the function: only a foreign client can ask for it.
            return self._refusal(name), ()
        types = argument_types(signature)
        return self._guard(entry, len(types), per_thread=per_thread), types

    def _guard(self, entry: registry.Entry, count: int, *, per_thread: bool) -> Callable[..., int]:
        """The Python side of a call of `count` arguments: any outcome becomes a result code."""
        executor = self.machine.executor
        wrap = self.machine.streams.per_thread if per_thread else _itself
        scope: dict[str, Any] = {
            "machine": self.machine,
            "waiting": executor.deferred.actions,
            "run_deferred": executor.deferred.run,
            "is_early": entry.before_init,
            "outcome": partial(self._outcome, entry.name),
        }

        if entry.awaits:

            def first_call(*arguments: Any) -> int | None:
                # Later calls find the function itself, and cost nothing more.
                call = scope["call"] = wrap(registry.loaded(entry).call)
                return call(*arguments)

            scope["call"] = first_call
        else:
            scope["call"] = wrap(entry.call)
        # A copy of the code for each function: the interpreter specialises code to its callees.
        guarded = FunctionType(_guard_code(count).replace(), scope)
        guarded.__qualname__ = f"{GUARDED}{entry.name}"
        return guarded

    def _outcome(self, name: str, problem: BaseException) -> tuple[int, object]:
        """The code for a call's exception, and an object to hold until the call's frame returns."""
        if isinstance(problem, DriverFailure):
            self.details.note(problem)
            return problem.code, None
        if isinstance(problem, KeyboardInterrupt):
            # It cannot pass through C code, so it is raised again in the caller's Python.
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

        Functions that end an object succeed, since no object is left. The rest is DEINITIALIZED.
        """
        self.silenced = _at_end
        for index, name in enumerate(self._names):
            self._slots.answer(index, _at_end(name))
        self.machine.end()

    def disown(self) -> None:
        """In a forked child: functions that need a device are NOT_INITIALIZED, without Python."""
        self.silenced = lambda _name: NOT_INITIALIZED
        for index in range(len(self._names)):
            if index not in self._lasting:
                self._slots.answer(index, NOT_INITIALIZED)

    def get_proc_address(self, name: str, version: int, *, per_thread: bool = False) -> int:
        """As `address`, with the driver's codes: NOT_FOUND if no driver has it, 0 if it is newer.

        `name` may be a symbol of the library, with its suffix; then it means that form.
        """
        if not name:
            raise DriverFailure(INVALID_VALUE, "the function name is empty")
        if not name.startswith("cu") or name not in self._symbols:
            raise DriverFailure(NOT_FOUND, f"{name} is not a function of the driver")
        self.asked.add((name, version))
        if _HAS_SUFFIX.search(name):
            return self._slots.address(self._symbols[name])
        if form(name, version) is None:
            return 0
        address = self.address(name, version, per_thread=per_thread)
        if not address:
            raise DriverFailure(NOT_FOUND, name)
        return address


def _itself(call: registry.Call) -> registry.Call:
    return call


def _at_end(name: str) -> int:
    """The code that a function returns after the interpreter has ended."""
    return DEINITIALIZED if _ENDS_OBJECTS.search(name) is None else SUCCESS


@cache
def _guard_code(count: int) -> CodeType:
    """`_GUARD` compiled for `count` arguments: hundreds of functions share a dozen counts."""
    names = "".join(f", a{index}" for index in range(count))
    text = _GUARD.format(parameters=names[2:], arguments=names)
    # Compiled under this file's name, so that a search for the caller's line skips it.
    (code,) = (
        constant
        for constant in compile(text, __file__, "exec").co_consts
        if isinstance(constant, CodeType)
    )
    return code


def catch_early_interrupts() -> None:
    """Keep a Ctrl-C that comes in the first instruction of a callback, before its `try`.

    Python drops such an interrupt after a call of `sys.unraisablehook`. All other calls of the hook
    go on to the previous hook.
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
    """An object that sets the interpreter's interrupt flag when its last reference goes.

    A local variable holds it until its function has returned to C. The next Python code is the
    caller's, and sees the flag. If the flag were set earlier, the callback would see it.
    """
    capsule: object = _new_capsule(1, None, _SET_INTERRUPT)
    return capsule


_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype = ctypes.py_object
_new_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
# A capsule's destructor takes one argument, and this function none: harmless in both psABIs.
_SET_INTERRUPT: Final = ctypes.cast(ctypes.pythonapi.PyErr_SetInterrupt, ctypes.c_void_p).value
