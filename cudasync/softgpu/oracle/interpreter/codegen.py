"""Cellar. Compiles LLVM IR text to a callable, without optimisation.

Assumption: llvmlite's MCJIT finds C library functions by name once they are registered.
"""

from __future__ import annotations

import ctypes
from ctypes.util import find_library
from typing import Any

import llvmlite.binding as llvm

from cudasync.locks import Lock
from cudasync.softgpu.interface.internal_threads import away_from_signals

_PROTOTYPE = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)
_FROM_C = (
    "fesetround", "sin", "cos", "exp2", "log2", "tanh", "fma", "fmaf",
    "rint", "trunc", "floor", "ceil",
)  # fmt: skip
# LLVM's global state (target registry, symbol table) is filled once.
_lock = Lock()
_is_ready = False


def _prepare() -> None:
    global _is_ready
    with _lock:
        if _is_ready:
            return
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        library = ctypes.CDLL(find_library("m") or "libm.so.6")
        for name in _FROM_C:
            address = ctypes.cast(getattr(library, name), ctypes.c_void_p).value
            assert address is not None
            llvm.add_symbol(name, address)
        _is_ready = True


def _engine_of(text: str) -> Any:
    # Never on the main thread: see `jit/machine_code/codegen.py`.
    _prepare()
    module = llvm.parse_assembly(text)
    module.verify()
    # The processor's own features make fma one instruction instead of a library call.
    machine = llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=0
    )
    engine = llvm.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    return engine


class MachineCode:
    """One thread function; it lives as long as this object."""

    def __init__(self, text: str) -> None:
        self._engine: Any = away_from_signals(lambda: _engine_of(text))
        self.thread = _PROTOTYPE(self._engine.get_function_address("thread"))
