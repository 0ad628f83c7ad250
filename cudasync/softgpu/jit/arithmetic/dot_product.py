"""Cellar, jit. dp4a and dp2a: sums of products of bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.ptx.types import ScalarType
from cudasync.softgpu.jit.vector_ir.values import Value, integer

if TYPE_CHECKING:
    from cudasync.ptx import ir
    from cudasync.softgpu.jit.vector_ir.builder import Builder
    from cudasync.softgpu.jit.vector_ir.lowering_context import Emitter, Lowering


def _field(builder: Builder, value: Value, start: int, bits: int, *, is_signed: bool) -> Value:
    """A bit field of a word as a 32-bit number."""
    top = builder.binary("shl", value, integer("i32", 32 - bits - start))
    return builder.binary("ashr" if is_signed else "lshr", top, integer("i32", 32 - bits))


def _dot(lowering: Lowering, instruction: ir.Instruction) -> None:
    if len(instruction.types) != 2:
        lowering.refuse(instruction)
    builder = lowering.builder
    first, second, total = (
        builder.flat(lowering.read(each, ScalarType.B32)) for each in instruction.operands[1:]
    )
    first_type, second_type = instruction.types
    count, width, begin = 4, 8, 0
    if instruction.opcode == "dp2a":
        count, width, begin = 2, 16, 16 if "hi" in instruction.modifiers else 0
    for k in range(count):
        one = _field(builder, first, k * width, width, is_signed=first_type.is_signed)
        other = _field(builder, second, begin + 8 * k, 8, is_signed=second_type.is_signed)
        total = builder.binary("add", total, builder.binary("mul", one, other))
    lowering.write(instruction.operands[0], total)


EMITTERS: dict[str, Emitter] = {"dp4a": _dot, "dp2a": _dot}
