"""Cellar, jit. Compiles LLVM IR text to machine code in this process, through llvmlite.

Code is generated for the better of two feature sets that the host supports fully: x86-64-v4, with
512-bit registers and mask registers, or x86-64-v3. Both give the same bits, because the result of
each instruction is fixed and nothing is contracted. On other hosts LLVM's defaults apply.

A kernel's machine code is kept by its text, so that a module loaded twice is compiled once. On disk
(`disk_cache.py`) it is kept by text, target and LLVM version, so that the next process compiles
nothing. The functions that kernels share (`Builder.functions`) are compiled at their first use, and
are then symbols of this process for every kernel.
"""

from __future__ import annotations

import ctypes
import functools
import struct
from collections import OrderedDict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import llvmlite
import llvmlite.binding as llvm

from cudasync.errors import CudasyncError
from cudasync.locks import Lock
from cudasync.softgpu.interface.internal_threads import away_from_signals
from cudasync.softgpu.jit.launch.worker_threads import PROCESSORS, Job
from cudasync.softgpu.jit.machine_code import disk_cache
from cudasync.softgpu.jit.machine_code.module_partitioning import cut, weight
from cudasync.softgpu.jit.machine_code.object_symbols import missing_symbols
from cudasync.softgpu.jit.machine_code.split_modules import LIGHT_LINE, is_split, modules
from cudasync.softgpu.jit.vector_ir import mask_vectors

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cudasync.softgpu.jit.kernel_abi.kernel_text import KernelFunction

_ENTRY = "kernel"
# Read as they are loaded: an edited file is another compiler, in later processes.
_FILES = tuple(Path(each).read_text(encoding="utf-8") for each in (__file__, mask_vectors.__file__))

# One compilation at a time, so that each text is compiled once, and only one thread calls LLVM.
_lock = Lock()
# The number of texts that were compiled, and of texts that were found on disk.
counts = {"compiled": 0, "found": 0}
# The engines that own the shared functions, by the functions' names.
_library: dict[str, Any] = {}
# By text: the kernel's function and an object that must live as long; in order of last use.
_kernels: OrderedDict[str, tuple[KernelFunction, Any]] = OrderedDict()
_MOST_KERNELS = 256

# The passes for a kernel's text, in this order. LLVM's own list for its first level takes four
# times as long, and makes one kernel of the bench faster by a tenth: the text is in vectors, each
# function is one stretch of code, and constants are written as constants.
_PASSES = (
    "always_inliner",
    "sroa",
    "simplify_cfg",
    "instruction_combine",
    "loop_simplify",
    "loop_rotate",
    "jump_threading",
    "simplify_cfg",
)
# The passes for text that is compiled quickly.
_LIGHT_PASSES = ("always_inliner", "sroa", "simplify_cfg")

# The limit of the search in LLVM's register allocator for other places of a value. With LLVM's own
# number, 10000, that time is quadratic in a kernel's size: machine code for 90 000 lines of text
# took 31 s and takes 11. The code of smaller kernels is the same to the byte.
REGION_OPTION = "grow-region-complexity-budget"
_REGION_BUDGET = 500

# The length of an object file, where several are kept as one.
_LENGTH = struct.Struct("<Q")

_PROTOTYPE = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)

# The levels as LLVM names them, the best first. For each, the features that it needs and the
# tuning of its code, in LLVM's names.
_V3 = ("avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe")
_V4 = ("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl", *_V3)
LEVELS = {
    "x86-64-v4": (_V4, "+fast-gather"),
    "x86-64-v3": (_V3, "+fast-gather,+prefer-256-bit"),
}


@functools.cache
def host_level() -> str:
    """The level of this host, or "" if it has none."""
    features = away_from_signals(llvm.get_host_cpu_features)
    return next((x for x in LEVELS if all(map(features.get, LEVELS[x][0]))), "")


def new_machine(level: str, target: Any = None, *, is_light: bool = False) -> Any:
    """A target machine of this level, of this host's kind unless `target` is given.

    A light machine generates code quickly: it selects instructions singly, and allocates registers
    block by block.
    """
    target = target or llvm.Target.from_default_triple()
    effort = 0 if is_light else 2
    if not level:
        return target.create_target_machine(opt=effort)
    return target.create_target_machine(cpu=level, features=LEVELS[level][1], opt=effort)


@functools.cache
def _machine() -> Any:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    # For the whole process; has no effect if LLVM does not know the option.
    llvm.set_option("cudasync", f"-{REGION_OPTION}={_REGION_BUDGET}")
    return new_machine(host_level())


def optimise(text: str, machine: Any, level: str | None = None) -> Any:
    """Parse, verify and optimise for a machine of a level; the default is the host's level."""
    more = mask_vectors.definitions(text, host_level() if level is None else level)
    module = llvm.parse_assembly(text + more)
    passes, builder = prepared(module, machine, is_light=is_light(text))
    passes.run(module, builder)
    return module


def is_light(text: str) -> bool:
    """Whether a text is to be compiled quickly, see `split_modules`."""
    return text.startswith(LIGHT_LINE)


def prepared(module: Any, machine: Any, *, is_light: bool = False) -> tuple[Any, Any]:
    """Fit a module to this machine and verify it; return its passes."""
    module.triple = machine.triple
    module.data_layout = str(machine.target_data)
    module.verify()
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options())
    passes = llvm.create_new_module_pass_manager()
    for each in _LIGHT_PASSES if is_light else _PASSES:
        getattr(passes, f"add_{each}_pass")()
    return passes, builder


@functools.cache
def _setup() -> tuple[str, ...]:
    """The inputs of machine code beside the text: LLVM, the processor, and these files."""
    version = ".".join(map(str, llvm.llvm_version_info))
    return llvmlite.__version__, version, _machine().triple, host_level(), *_FILES


def _codes(texts: Sequence[str]) -> list[list[bytes]]:
    """Object files with the machine code of each of `texts`."""
    keys = {text: disk_cache.key_of(*_setup(), text) for text in texts}
    found = {text: disk_cache.find(key) for text, key in keys.items()}
    ready = {text: _unpacked(code) for text, code in found.items() if code is not None}
    missing = [text for text in keys if text not in ready]
    loads = {text: weight(text) for text in missing}
    cuts = {text: cut_into_modules(text, sum(loads.values()) - loads[text]) for text in missing}
    made = _made_at_once([part for parts in cuts.values() for part in parts])
    for text, parts in cuts.items():
        ready[text] = [made[part] for part in parts]
        disk_cache.keep(keys[text], _packed(ready[text]))
    counts["compiled"] += len(missing)
    counts["found"] += len(found) - len(missing)
    return [ready[text] for text in texts]


def cut_into_modules(text: str, beside: int = 0) -> tuple[str, ...]:
    """The modules of a text; `beside` is the weight of the texts that are compiled with it."""
    if is_split(text):
        return modules(text)
    return cut(text, beside) if PROCESSORS > 1 else (text,)


def _packed(codes: Sequence[bytes]) -> bytes:
    """Several object files as one, each after its length."""
    return b"".join(_LENGTH.pack(len(code)) + code for code in codes)


def _unpacked(packed: bytes) -> list[bytes]:
    codes, at = [], 0
    while at < len(packed):
        (length,) = _LENGTH.unpack_from(packed, at)
        at += _LENGTH.size + length
        codes.append(packed[at - length : at])
    return codes


def _made_at_once(parts: Sequence[str]) -> dict[str, bytes]:
    """The object file of each part, the longest first; free helpers take part."""
    if len(parts) < 2:
        machine = _machine()
        return {part: machine.emit_object(optimise(part, machine)) for part in parts}
    waiting = sorted(parts, key=weight)
    made: dict[str, bytes] = {}

    def make() -> None:
        while waiting:
            try:
                part = waiting.pop()
            except IndexError:  # Another thread was faster.
                return
            made[part] = _made_apart(part)

    jobs = [Job(make) for _ in range(min(len(parts), PROCESSORS) - 1)]
    for job in jobs:
        job.ask()
    make()
    for job in jobs:
        job.join()
    return made


def _made_apart(text: str) -> bytes:
    """Make an object file beside other threads, with a context and a machine of its own.

    llvmlite lets one thread at a time call LLVM. LLVM itself only demands that threads share no
    context. So the long calls go directly to the library.
    """
    library, error = _library_itself(), ctypes.c_char_p()
    light = is_light(text)
    context, machine = llvm.create_context(), new_machine(host_level(), is_light=light)
    whole = (text + mask_vectors.definitions(text, host_level())).encode()
    pointer = library.LLVMPY_ParseAssembly(context, whole, ctypes.byref(error))
    if error.value:
        raise CudasyncError(f"LLVM: {error.value.decode()}")
    module = llvm.ModuleRef(pointer, context)
    passes, builder = prepared(module, machine, is_light=light)
    library.LLVMPY_RunNewModulePassManager(passes, module, builder)
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
    """llvmlite's library without llvmlite's lock, and with llvmlite's prototypes."""
    library = ctypes.CDLL(llvm.ffi.lib._name)
    for name in (
        "LLVMPY_ParseAssembly",
        "LLVMPY_RunNewModulePassManager",
        "LLVMPY_TargetMachineEmitToMemory",
        "LLVMPY_GetBufferStart",
        "LLVMPY_GetBufferSize",
        "LLVMPY_DisposeMemoryBuffer",
    ):
        theirs, ours = getattr(llvm.ffi.lib, name), getattr(library, name)
        ours.argtypes, ours.restype = theirs.argtypes, theirs.restype
    return library


def link(codes: Sequence[bytes]) -> Any:
    """An engine that holds this machine code."""
    missing = missing_symbols(codes)
    if missing:
        raise CudasyncError(
            f"compiled code needs {', '.join(sorted(missing))}: no library defines them"
        )
    # An engine takes ownership of its target machine.
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), new_machine(host_level()))
    for code in codes:
        engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    return engine


def declaration(definition: str) -> str:
    """The declaration of a function from its definition."""
    head = definition[definition.index("define ") : definition.index("{")]
    return "declare " + head.removeprefix("define ")


def _text_of(names: Sequence[str], functions: Mapping[str, str], declarations: str) -> str:
    """A module with the functions of these names, which may call the others."""
    others = [declaration(each) for name, each in functions.items() if name not in names]
    return "\n".join([*(functions[name] for name in names), *others, declarations])


def _provide(names: Sequence[str], engine: Any) -> None:
    """Make functions symbols of the process, for as long as it lives."""
    for name in names:
        symbol = name.removeprefix("@")
        llvm.add_symbol(symbol, engine.get_function_address(symbol))
        _library[name] = engine


def compile_text(
    text: str, functions: Mapping[str, str], declarations: str
) -> tuple[KernelFunction, Any]:
    """Machine code for the kernel in `text`: a function of a job's address, and its owner.

    `functions` are the functions that the kernel calls; `declarations` are their callees.
    """
    with _lock:
        found = _kernels.get(text)
        if found is not None:
            _kernels.move_to_end(text)
            return found
    return away_from_signals(lambda: _compiled(text, functions, declarations))


def _compiled(
    text: str, functions: Mapping[str, str], declarations: str
) -> tuple[KernelFunction, Any]:
    # Never on the main thread: a signal handler that raises between the end of an object of LLVM's
    # and llvmlite's note of that end has the object freed twice.
    with _lock:
        found = _kernels.get(text)
        if found is None:
            new = [name for name in functions if name not in _library]
            texts = [_text_of(new, functions, declarations)] if new else []
            # Both are compiled at once; only linking must follow this order.
            *library, code = _codes([*texts, text])
            for each in library:
                _provide(new, link(each))
            engine = link(code)
            found = _PROTOTYPE(engine.get_function_address(_ENTRY)), engine
            _kernels[text] = found
            if len(_kernels) > _MOST_KERNELS:
                _kernels.popitem(last=False)
        _kernels.move_to_end(text)
        return found


def compile_functions(text: str, names: Sequence[str]) -> tuple[dict[str, int], Any]:
    """The addresses of functions and variables in a text that calls Python, and their owner.

    The machine code is kept on disk, like a kernel's; the text must not contain an address.
    """
    return away_from_signals(lambda: _functions(text, names))


def _functions(text: str, names: Sequence[str]) -> tuple[dict[str, int], Any]:
    with _lock:
        key = disk_cache.key_of(*_setup(), text)
        code = disk_cache.find(key)
        if code is None:
            code = _machine().emit_object(optimise(text, _machine()))
            disk_cache.keep(key, code)
        engine = link([code])
    found = {name: engine.get_global_value_address(name) for name in names}
    return found, engine
