"""Functions of LLVM text, compiled and called in this process."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

import llvmlite.binding as llvm

from cudasync.softgpu.jit.machine_code import codegen

if TYPE_CHECKING:
    from collections.abc import Callable

    from cudasync.softgpu.jit.vector_ir.builder import Builder

_POINTER = ctypes.c_void_p
# The branch weights that text may use, as in `jit/pipeline.py`.
_WEIGHTS = [
    '!1 = !{!"branch_weights", i32 1, i32 2000}',
    '!2 = !{!"branch_weights", i32 2000, i32 1}',
]


def native(text: str, *arguments: Any, level: str | None = None) -> Callable[..., None]:
    """`@f` of the text, which returns nothing. The code runs on this host; the text is for
    `level`."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = codegen.new_machine(codegen.host_level())
    engine = llvm.create_mcjit_compiler(codegen.optimise(text, machine, level), machine)
    engine.finalize_object()
    function = ctypes.CFUNCTYPE(None, *arguments)(engine.get_function_address("f"))
    # The engine lives as long as the function.
    function.engine = engine
    return function


def of_arrays(builder: Builder) -> str:
    """The text of `@f(given, taken)` with two addresses; its body is the emitted code."""
    lines = [*builder.lines, "  ret void", "}", *sorted(builder.declarations), *_WEIGHTS]
    return "\n".join(["define void @f(ptr %given, ptr %taken) {", "entry:", *lines, ""])


def native_of(builder: Builder) -> Callable[[int, int], None]:
    return native(of_arrays(builder), _POINTER, _POINTER)
