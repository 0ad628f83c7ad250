"""Cellar, jit. mma and wmma.mma: a matrix product of a warp, by one function for each form.

PTX requires all lanes to be active. Inactive lanes contribute the values that they held last.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.softgpu.jit.matrix.fragment_memory import put, stack_memory, take
from cudasync.softgpu.jit.matrix.matrix_functions import MatrixCode, write_code
from cudasync.softgpu.jit.matrix.wmma import load, store
from cudasync.softgpu.semantics.matrix_forms import form_of
from cudasync.softgpu.semantics.matrix_fragments import fragment

if TYPE_CHECKING:
    from cudasync.ptx import ir
    from cudasync.softgpu.jit.vector_ir.lowering_context import Emitter, Lowering

# The functions by the name of their form.
_codes: dict[str, MatrixCode | None] = {}


def _multiply(lowering: Lowering, instruction: ir.Instruction) -> None:
    form = form_of(instruction)
    if form is None or len(instruction.operands) != 4:
        lowering.refuse(instruction)
    if form.name not in _codes:
        _codes[form.name] = write_code(form)
    code = _codes[form.name]
    if code is None:
        lowering.refuse(instruction, f"rounding mode .{form.rounding} is not implemented here")
    builder = lowering.builder
    builder.functions[code.name] = code.text
    builder.declarations |= code.declarations
    target, *sources = instruction.operands
    given = [
        put(lowering, instruction, each, fragment(form, operand), operand)
        for operand, each in zip("abc", sources, strict=True)
    ]
    result = stack_memory(lowering, "d")
    places = ", ".join(f"ptr {place}" for place in [*given, result])
    builder.emit(f"call void {code.name}({places})")
    take(lowering, instruction, target, fragment(form, "d"), result)


def _wmma(lowering: Lowering, instruction: ir.Instruction) -> None:
    if "load" in instruction.modifiers:
        load(lowering, instruction)
    elif "store" in instruction.modifiers:
        store(lowering, instruction)
    else:
        _multiply(lowering, instruction)


EMITTERS: dict[str, Emitter] = {"mma": _multiply, "wmma": _wmma}
