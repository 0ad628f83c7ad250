"""Cellar, jit. The number of a barrier and its count of threads, for a warp as a whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.ptx.ir import Integer, Register
from cudasync.ptx.types import ScalarType
from cudasync.softgpu.jit.kernel_abi.job_record import (
    BARRIERS,
)
from cudasync.softgpu.jit.vector_ir.lane_masks import mask_word
from cudasync.softgpu.jit.vector_ir.values import Value, integer, uniform

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cudasync.ptx.ir import Instruction, Operand
    from cudasync.softgpu.jit.vector_ir.lowering_context import Lowering


def number_and_count(lowering: Lowering, instruction: Instruction) -> tuple[Value, Value]:
    """The barrier's number and its count of threads, 0 for all, for the warp's active lanes.

    If they are in registers, the first active lane decides; `emit_agreement` checks the others.
    """
    operands = _operands(instruction)
    if not operands or len(operands) > 2:
        lowering.refuse(instruction)
    for each in operands:
        if not isinstance(each, Integer | Register):
            lowering.refuse(instruction)
    number = _of_warp(lowering, instruction, operands[0])
    if number.literal is not None and not 0 <= number.literal < BARRIERS:
        lowering.refuse(instruction)
    count = _of_warp(lowering, instruction, operands[1]) if len(operands) > 1 else integer("i32", 0)
    return number, count


def is_fixed(instruction: Instruction) -> bool:
    """Whether the barrier's number and count are constants."""
    return all(isinstance(each, Integer) for each in _operands(instruction))


def fixed_number(instruction: Instruction) -> int | None:
    """The barrier's number, or None if number or count is in a register."""
    number = _operands(instruction)[0]
    return number.value if isinstance(number, Integer) and is_fixed(instruction) else None


def _of_warp(lowering: Lowering, instruction: Instruction, operand: Operand) -> Value:
    builder = lowering.builder
    value = lowering.read(operand, ScalarType.U32)
    if value.is_uniform:
        return value
    if instruction.opcode == "barrier" and "aligned" not in instruction.modifiers:
        lowering.refuse(instruction, "lanes of one warp at different barriers are not implemented")
    builder.declarations.add("declare i32 @llvm.cttz.i32(i32, i1)")
    word = mask_word(builder, lowering.mask)
    first = builder.name(f"call i32 @llvm.cttz.i32(i32 {word}, i1 false)")
    lane = builder.name(f"and i32 {first}, {builder.lanes - 1}")
    vector = f"{builder.vector_type('i32')} {builder.vector(value)}"
    return uniform("i32", builder.name(f"extractelement {vector}, i32 {lane}"))


def _operands(instruction: Instruction) -> Sequence[Operand]:
    """Number and count, without a reduction's result and predicate."""
    operands = instruction.operands
    if "red" in instruction.modifiers:
        return operands[1:-1]
    return operands
