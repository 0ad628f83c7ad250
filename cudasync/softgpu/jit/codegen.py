"""Cellar, jit. LLVM IR text to machine code in this process, through llvmlite.

Code is generated for AVX2 where the host has it, and not for more: the same code on every
machine, and 512-bit gathers lost more than wide arithmetic won. Elsewhere LLVM's defaults apply.

A kernel's machine code is kept by its text, so that modules loaded twice are compiled once. The
functions that kernels share (`Builder.functions`) are compiled when one is first called for, and
are then symbols of this process for every kernel.
"""

from __future__ import annotations

import ctypes
import functools
import threading
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import llvmlite.binding as llvm

from cudasync.errors import CudasyncError
from cudasync.softgpu.jit.objects import missing_symbols

_ENTRY = "kernel"
# One compilation at a time: texts are compiled once, and LLVM is not asked twice at once.
_lock = threading.Lock()
# The engines that own the shared functions, by the functions' names.
_library: dict[str, Any] = {}

# Calls release the GIL: that is what CFUNCTYPE is for here.
KernelFunction: TypeAlias = Callable[[int], int]
_PROTOTYPE = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)

# What x86-64-v3 means, as LLVM names features, and gathers, which all such machines have.
_V3 = ("avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe")
_TUNING = "+fast-gather,+prefer-256-bit"


def _new_machine() -> Any:
    target = llvm.Target.from_default_triple()
    features = llvm.get_host_cpu_features()
    if all(features.get(name) for name in _V3):
        return target.create_target_machine(cpu="x86-64-v3", features=_TUNING, opt=2)
    return target.create_target_machine(opt=2)


@functools.cache
def _machine() -> Any:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return _new_machine()


def optimise(text: str) -> Any:
    """Parse, verify and optimise; the llvmlite module."""
    machine = _machine()
    module = llvm.parse_assembly(text)
    module.triple = machine.triple
    module.data_layout = str(machine.target_data)
    module.verify()
    tuning = llvm.create_pipeline_tuning_options(speed_level=2)
    # The text is in vectors already.
    tuning.loop_vectorization = False
    tuning.slp_vectorization = False
    tuning.loop_interleaving = False
    tuning.loop_unrolling = False
    builder = llvm.create_pass_builder(machine, tuning)
    builder.getModulePassManager().run(module, builder)
    return module


def _link(text: str) -> Any:
    """An engine that holds the machine code of `text`."""
    code = _machine().emit_object(optimise(text))
    missing = missing_symbols(code)
    if missing:
        raise CudasyncError(f"compiled code needs {', '.join(sorted(missing))}: nobody has it")
    # An engine takes its target machine over.
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), _new_machine())
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    return engine


def declaration(definition: str) -> str:
    """The declaration of a function from its definition."""
    head = definition[definition.index("define ") : definition.index("{")]
    return "declare " + head.removeprefix("define ")


def _provide(functions: Mapping[str, str], declarations: str) -> None:
    """Make these functions symbols of the process, with what they call among them."""
    new = [name for name in functions if name not in _library]
    if not new:
        return
    known = [declaration(functions[name]) for name in functions if name not in new]
    text = "\n".join([*(functions[name] for name in new), *known, declarations])
    engine = _link(text)
    for name in new:
        symbol = name.removeprefix("@")
        llvm.add_symbol(symbol, engine.get_function_address(symbol))
        _library[name] = engine


@functools.lru_cache(maxsize=256)
def _compile(text: str) -> tuple[KernelFunction, Any]:
    """The function, and what has to live as long as it."""
    engine = _link(text)
    return _PROTOTYPE(engine.get_function_address(_ENTRY)), engine


def compile_text(
    text: str, functions: Mapping[str, str], declarations: str
) -> tuple[KernelFunction, Any]:
    """Machine code for the kernel in `text`: a function of a job's address, and its owner.

    `functions` are those it calls, and `declarations` what these call in turn.
    """
    with _lock:
        _provide(functions, declarations)
        return _compile(text)
