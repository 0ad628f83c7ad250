"""Cellar, jit. LLVM IR text to machine code in this process, through llvmlite.

Code is generated for one of two sets of features, the best that the host has whole: x86-64-v4,
with registers of 512 bits and masks of their own, or x86-64-v3. Its results are the same bits: what
an instruction computes is fixed, and nothing is contracted. Elsewhere LLVM's defaults apply.

A kernel's machine code is kept by its text, so that modules loaded twice are compiled once; on disk
(`kept.py`) by text, target and version of LLVM, so that the next process compiles nothing. The
functions that kernels share (`Builder.functions`) are compiled when one is first called for, and
are then symbols of this process for every kernel.
"""

from __future__ import annotations

import ctypes
import functools
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import llvmlite
import llvmlite.binding as llvm

from cudasync.errors import CudasyncError
from cudasync.softgpu.jit import kept
from cudasync.softgpu.jit.cutting import cut, is_segment
from cudasync.softgpu.jit.helpers import PROCESSORS, Job
from cudasync.softgpu.jit.objects import missing_symbols

_ENTRY = "kernel"
# One compilation at a time: texts are compiled once, and LLVM is not asked twice at once.
_lock = threading.Lock()
# How often LLVM's passes were run, and how often code was found on disk instead.
counts = {"compiled": 0, "found": 0}
# The engines that own the shared functions, by the functions' names.
_library: dict[str, Any] = {}

# What makes machine code's text of the kernel's, in this order. LLVM's own list for its first level
# takes four times as long, and makes one kernel of the bench faster by a tenth: the text is in
# vectors, its functions are one stretch of code each, and what can be constant is written so.
_PASSES = (
    "always_inliner",
    "sroa",
    "simplify_cfg",
    "instruction_combine",
    "loop_simplify",
    "loop_rotate",
    "jump_threading",
    "instruction_combine",
    "simplify_cfg",
)

# Calls release the GIL: that is what CFUNCTYPE is for here.
KernelFunction: TypeAlias = Callable[[int], int]
_PROTOTYPE = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)

# The levels as LLVM names them, the best first; what each means, in LLVM's names for features; and
# how its code is tuned.
_V3 = ("avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe")
_V4 = ("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl", *_V3)
LEVELS = {
    "x86-64-v4": (_V4, "+fast-gather"),
    "x86-64-v3": (_V3, "+fast-gather,+prefer-256-bit"),
}


@functools.cache
def _level() -> str:
    """The level of this host, or nothing where it has none."""
    features = llvm.get_host_cpu_features()
    return next((x for x in LEVELS if all(map(features.get, LEVELS[x][0]))), "")


def new_machine(level: str, target: Any = None) -> Any:
    """A target machine of this level, of this host's kind if nothing else is asked for."""
    target = target or llvm.Target.from_default_triple()
    if not level:
        return target.create_target_machine(opt=2)
    return target.create_target_machine(cpu=level, features=LEVELS[level][1], opt=2)


@functools.cache
def _machine() -> Any:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return new_machine(_level())


def optimise(text: str, machine: Any) -> Any:
    """Parse, verify and optimise for a machine; the llvmlite module."""
    module, passes, builder = _parsed(text, machine, None)
    passes.run(module, builder)
    return module


def _parsed(text: str, machine: Any, context: Any) -> tuple[Any, Any, Any]:
    """A module, and the passes for it; of LLVM's common context, if none is given."""
    module = llvm.parse_assembly(text, context)
    module.triple = machine.triple
    module.data_layout = str(machine.target_data)
    module.verify()
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options())
    passes = llvm.create_new_module_pass_manager()
    for each in _PASSES:
        getattr(passes, f"add_{each}_pass")()
    return module, passes, builder


@functools.cache
def _setup() -> tuple[str, ...]:
    """What machine code depends on beside the text: LLVM, the processor, and this file."""
    version = ".".join(map(str, llvm.llvm_version_info))
    here = Path(__file__).read_text(encoding="utf-8")
    return llvmlite.__version__, version, _machine().triple, _level(), here


def _code(text: str) -> list[bytes]:
    """Object files with the machine code of `text`."""
    machine = _machine()
    parts = cut(text) if PROCESSORS > 1 else (text,)
    found = {part: kept.find(kept.key_of(*_setup(), part)) for part in parts}
    wanted = [part for part, code in found.items() if code is None]
    if len(wanted) == 1:
        made = [machine.emit_object(optimise(wanted[0], machine))]
    else:
        made = _made_at_once(wanted)
    for part, code in zip(wanted, made, strict=True):
        kept.keep(kept.key_of(*_setup(), part), code)
    counts["compiled"] += len(made)
    counts["found"] += len(parts) - len(made)
    ready = found | dict(zip(wanted, made, strict=True))
    return [code for code in ready.values() if code is not None]


def _made_at_once(parts: list[str]) -> list[bytes]:
    """Object files of two texts, one made by a helper if one has time; of none, none."""
    if not parts:
        return []
    own, other = parts
    made: list[bytes] = []
    job = Job(lambda: made.append(_made_apart(other)))
    job.ask()
    first = _made_apart(own)
    job.join()
    return [first, made[0] if made else _made_apart(other)]


def _made_apart(text: str) -> bytes:
    """An object file, made beside others: its context and machine are nobody else's.

    llvmlite lets one thread at a time call LLVM, which itself only asks that threads share no
    context. So what takes long is called in the library itself.
    """
    machine = new_machine(_level())
    module, passes, builder = _parsed(text, machine, llvm.create_context())
    library = _library_itself()
    library.LLVMPY_RunNewModulePassManager(passes, module, builder)
    error = ctypes.c_char_p()
    buffer = library.LLVMPY_TargetMachineEmitToMemory(machine, module, 1, ctypes.byref(error))
    if not buffer:
        raise CudasyncError(f"LLVM: {(error.value or b'no object file').decode()}")
    try:
        start, size = library.LLVMPY_GetBufferStart(buffer), library.LLVMPY_GetBufferSize(buffer)
        return ctypes.string_at(start, size)
    finally:
        library.LLVMPY_DisposeMemoryBuffer(buffer)


@functools.cache
def _library_itself() -> Any:
    """llvmlite's library without its lock; the prototypes are its own."""
    library = ctypes.CDLL(llvm.ffi.lib._name)
    for name in (
        "LLVMPY_RunNewModulePassManager",
        "LLVMPY_TargetMachineEmitToMemory",
        "LLVMPY_GetBufferStart",
        "LLVMPY_GetBufferSize",
        "LLVMPY_DisposeMemoryBuffer",
    ):
        theirs, ours = getattr(llvm.ffi.lib, name), getattr(library, name)
        ours.argtypes, ours.restype = theirs.argtypes, theirs.restype
    return library


def _link(text: str) -> Any:
    """An engine that holds the machine code of `text`."""
    codes = _code(text)
    missing = {name for code in codes for name in missing_symbols(code) if not is_segment(name)}
    if missing:
        raise CudasyncError(f"compiled code needs {', '.join(sorted(missing))}: nobody has it")
    # An engine takes its target machine over.
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), new_machine(_level()))
    for code in codes:
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
