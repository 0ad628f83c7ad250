"""Cellar, jit. Extended-precision arithmetic: the carry flag between add.cc, addc and the like.

The flag is one predicate per lane, `%carry`, which lives as long as the warp function. PTX keeps it
across no barrier and no call, and neither does this code. A difference is a sum with the
complement, as in hardware: the flag is set if nothing was borrowed. This is visible if addc follows
sub.cc, as in NVIDIA's own division of 128-bit integers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.softgpu.jit.vector_ir.values import Value, integer, varying

if TYPE_CHECKING:
    from cudasync.ptx import ir
    from cudasync.softgpu.jit.vector_ir.lowering_context import Lowering


def _flag(lowering: Lowering, type_: str) -> Value:
    """The carry as 0 or 1."""
    builder = lowering.builder
    flags = varying("i1", builder.name(f"load {builder.vector_type('i1')}, ptr %carry"))
    return builder.apply("zext {T} {0} to {R}", type_, flags)


def _keep(lowering: Lowering, carries: Value) -> None:
    builder = lowering.builder
    flags = builder.vector_type("i1")
    old = builder.name(f"load {flags}, ptr %carry")
    new = builder.vector(carries)
    kept = builder.name(f"select {flags} {lowering.mask}, {flags} {new}, {flags} {old}")
    builder.emit(f"store {flags} {kept}, ptr %carry")


def _sum(lowering: Lowering, instruction: ir.Instruction, first: Value, second: Value) -> Value:
    """first + second (+ carry, for opcodes in "c"); sets the carry with .cc."""
    builder = lowering.builder
    total = builder.binary("add", first, second)
    carries = builder.compare("icmp ult", total, first)
    if instruction.opcode.endswith("c"):
        more = _flag(lowering, first.type)
        extended = builder.binary("add", total, more)
        carries = builder.binary("or", carries, builder.compare("icmp ult", extended, total))
        total = extended
    if "cc" in instruction.modifiers:
        _keep(lowering, carries)
    return total


def add(lowering: Lowering, instruction: ir.Instruction) -> None:
    first, second = (lowering.read(each, instruction.type) for each in instruction.operands[1:])
    lowering.write(instruction.operands[0], _sum(lowering, instruction, first, second))


def subtract(lowering: Lowering, instruction: ir.Instruction) -> None:
    builder = lowering.builder
    first, second = (lowering.read(each, instruction.type) for each in instruction.operands[1:])
    difference = builder.binary("sub", first, second)
    borrows = builder.compare("icmp ult", first, second)
    if instruction.opcode == "subc":
        flag = _flag(lowering, first.type)
        less = builder.binary("xor", flag, integer(flag.type, 1))
        borrows = builder.binary("or", borrows, builder.compare("icmp ult", difference, less))
        difference = builder.binary("sub", difference, less)
    if "cc" in instruction.modifiers:
        _keep(lowering, lowering.negate(borrows))
    lowering.write(instruction.operands[0], difference)


def multiply_add(lowering: Lowering, instruction: ir.Instruction) -> None:
    builder = lowering.builder
    type_ = instruction.type
    first, second, third = (
        builder.flat(lowering.read(each, type_)) for each in instruction.operands[1:]
    )
    if "hi" in instruction.modifiers:
        double = f"i{2 * type_.bits}"
        wide = [
            builder.flat(builder.extend(each, double, is_signed=type_.is_signed))
            for each in (first, second)
        ]
        high = builder.binary("lshr", builder.binary("mul", *wide), integer(double, type_.bits))
        value = builder.truncate(high, first.type)
    else:
        value = builder.binary("mul", first, second)
    lowering.write(instruction.operands[0], _sum(lowering, instruction, value, third))
