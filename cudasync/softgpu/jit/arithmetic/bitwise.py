"""Cellar, jit. Logic, shifts, and operations on single bits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.ptx.ir import Integer
from cudasync.ptx.types import ScalarType
from cudasync.softgpu.jit.vector_ir.values import Value, bits_of, integer
from cudasync.softgpu.jit.vector_ir.wraparound_indices import in_lanes, is_alone, where_negative

if TYPE_CHECKING:
    from cudasync.ptx import ir
    from cudasync.softgpu.jit.vector_ir.builder import Builder
    from cudasync.softgpu.jit.vector_ir.lowering_context import Emitter, Lowering


def _logic(lowering: Lowering, instruction: ir.Instruction) -> None:
    builder = lowering.builder
    first, second = (lowering.read(each, instruction.type) for each in instruction.operands[1:])
    result = _masked(builder, first, second) if instruction.opcode == "and" else None
    if result is None:
        result = builder.binary(instruction.opcode, first, second)
    lowering.write(instruction.operands[0], result)


def _masked(builder: Builder, first: Value, second: Value) -> Value | None:
    """`first & second`, if one is zero except in some lanes, or if only its sign is tested."""
    if first.is_uniform:
        first, second = second, first
    if not second.is_uniform:
        return None
    if is_alone(first):
        return in_lanes(first, lambda amount: builder.binary("and", amount, second))
    sign = 1 << (bits_of(first.type) - 1)
    return where_negative(builder, first, -sign) if second.literal == -sign else None


def _invert(lowering: Lowering, instruction: ir.Instruction) -> None:
    value = lowering.read(instruction.operands[1], instruction.type)
    result = lowering.builder.binary("xor", value, integer(value.type, -1))
    lowering.write(instruction.operands[0], result)


def _is_zero(lowering: Lowering, instruction: ir.Instruction) -> None:
    """cnot: 1 for zero, else 0."""
    builder = lowering.builder
    value = lowering.read(instruction.operands[1], instruction.type)
    flag = builder.compare("icmp eq", value, integer(value.type, 0))
    lowering.write(instruction.operands[0], builder.apply("zext {T} {0} to {R}", value.type, flag))


def shifted(builder: Builder, operation: str, value: Value, count: Value) -> Value:
    """Shift by a 32-bit count; if it exceeds the width, no bit remains (or only the sign)."""
    bits = bits_of(value.type)
    if count.literal is not None:
        amount = count.literal & 0xFFFFFFFF
        if amount < bits:
            if operation == "shl":
                return builder.shift_left(value, amount)
            if is_alone(value):
                return in_lanes(value, lambda each: shifted(builder, operation, each, count))
            if operation == "ashr" and amount == 63:
                found = where_negative(builder, value, -1)
                if found is not None:
                    return found
            return builder.binary(operation, value, integer(value.type, amount))
        if operation != "ashr":
            return integer(value.type, 0)
        return builder.binary("ashr", value, integer(value.type, bits - 1))
    count = builder.flat(count)
    most = builder.intrinsic("umin", "i32", count, integer("i32", bits - 1))
    if bits > 32:
        amount_value = builder.flat(builder.extend(most, value.type, is_signed=False))
    else:
        amount_value = builder.truncate(most, value.type)
    result = builder.binary(operation, value, amount_value)
    if operation == "ashr":
        return result
    is_gone = builder.compare("icmp uge", count, integer("i32", bits))
    return builder.select(is_gone, integer(value.type, 0), result)


def _shift(lowering: Lowering, instruction: ir.Instruction) -> None:
    value = lowering.read(instruction.operands[1], instruction.type)
    count = lowering.read(instruction.operands[2], ScalarType.U32)
    operation = "shl"
    if instruction.opcode == "shr":
        operation = "ashr" if instruction.type.is_signed else "lshr"
    lowering.write(instruction.operands[0], shifted(lowering.builder, operation, value, count))


def _funnel(lowering: Lowering, instruction: ir.Instruction) -> None:
    """shf: shift the 64 bits b:a and take a word; .clamp stops at 32, .wrap takes modulo 32."""
    builder = lowering.builder
    low, high, count = (
        builder.flat(lowering.read(each, ScalarType.B32)) for each in instruction.operands[1:]
    )
    is_left = "l" in instruction.modifiers
    result = builder.intrinsic("fshl" if is_left else "fshr", "i32", high, low, count)
    if "clamp" in instruction.modifiers:
        is_over = builder.compare("icmp ugt", count, integer("i32", 31))
        result = builder.select(is_over, low if is_left else high, result)
    lowering.write(instruction.operands[0], result)


def _count(lowering: Lowering, instruction: ir.Instruction) -> None:
    """popc and clz, with results of 32 bits."""
    builder = lowering.builder
    value = lowering.read(instruction.operands[1], instruction.type)
    if instruction.opcode == "popc":
        result = builder.intrinsic("ctpop", value.type, value)
    else:
        result = builder.intrinsic("ctlz", value.type, value, flag="false")
    lowering.write(instruction.operands[0], builder.truncate(result, "i32"))


def _reverse(lowering: Lowering, instruction: ir.Instruction) -> None:
    value = lowering.read(instruction.operands[1], instruction.type)
    result = lowering.builder.intrinsic("bitreverse", value.type, value)
    lowering.write(instruction.operands[0], result)


def _find(lowering: Lowering, instruction: ir.Instruction) -> None:
    """bfind: the highest bit that differs from the sign; all ones if there is none."""
    builder = lowering.builder
    value = lowering.read(instruction.operands[1], instruction.type)
    bits = bits_of(value.type)
    if instruction.type.is_signed:
        sign = builder.binary("ashr", value, integer(value.type, bits - 1))
        value = builder.binary("xor", value, sign)
    zeros = builder.truncate(builder.intrinsic("ctlz", value.type, value, flag="false"), "i32")
    none = builder.compare("icmp eq", value, integer(value.type, 0))
    result = zeros
    if "shiftamt" not in instruction.modifiers:
        result = builder.binary("sub", integer("i32", bits - 1), zeros)
    lowering.write(instruction.operands[0], builder.select(none, integer("i32", -1), result))


def _byte(lowering: Lowering, operand: ir.Operand, bits: int) -> Value:
    """A position or length in a field of `bits`: at most 255.

    Of a greater number, 32-bit forms take the low 8 bits. To 64-bit forms it lies beyond every bit,
    as in hardware, although the ISA has the low 8 bits there too.
    """
    builder = lowering.builder
    value = builder.flat(lowering.read(operand, ScalarType.U32))
    if value.literal is not None:
        number = value.literal & 0xFFFFFFFF
        return integer("i32", min(number, 0xFF) if bits > 32 else number & 0xFF)
    if bits > 32:
        return builder.intrinsic("umin", "i32", value, integer("i32", 0xFF))
    return builder.binary("and", value, integer("i32", 0xFF))


def _low_bits(builder: Builder, type_: str, count: Value) -> Value:
    """A mask of the lowest `count` bits, or of all bits if there are fewer."""
    everything = integer(type_, -1)
    return builder.binary("xor", shifted(builder, "shl", everything, count), everything)


def _extract(lowering: Lowering, instruction: ir.Instruction) -> None:
    """bfe: a field of bits, extended by zeros or by its sign."""
    builder = lowering.builder
    value = builder.flat(lowering.read(instruction.operands[1], instruction.type))
    bits = bits_of(value.type)
    position, length = (_byte(lowering, each, bits) for each in instruction.operands[2:4])
    if not instruction.type.is_signed:
        field = shifted(builder, "lshr", value, position)
        mask = _low_bits(builder, value.type, length)
        lowering.write(instruction.operands[0], builder.binary("and", field, mask))
        return
    # Move the field to the top, then back down with its sign. If it extends beyond the top, its
    # sign is the value's own; a field of no bits is zero.
    end = builder.binary("add", position, length)
    last = builder.intrinsic("umin", "i32", end, integer("i32", bits))
    taken = builder.intrinsic("usub.sat", "i32", last, position)
    up = builder.binary("sub", integer("i32", bits), last)
    top = shifted(builder, "shl", value, up)
    field = shifted(builder, "ashr", top, builder.binary("sub", integer("i32", bits), taken))
    is_empty = builder.compare("icmp eq", length, integer("i32", 0))
    lowering.write(instruction.operands[0], builder.select(is_empty, integer(value.type, 0), field))


def _insert(lowering: Lowering, instruction: ir.Instruction) -> None:
    """bfi: put a field of bits into another value."""
    builder = lowering.builder
    field, value = (
        builder.flat(lowering.read(each, instruction.type)) for each in instruction.operands[1:3]
    )
    bits = bits_of(value.type)
    position, length = (_byte(lowering, each, bits) for each in instruction.operands[3:5])
    mask = shifted(builder, "shl", _low_bits(builder, value.type, length), position)
    moved = builder.binary("and", shifted(builder, "shl", field, position), mask)
    kept = builder.binary("and", value, builder.binary("xor", mask, integer(value.type, -1)))
    lowering.write(instruction.operands[0], builder.binary("or", moved, kept))


def _mask(lowering: Lowering, instruction: ir.Instruction) -> None:
    """bmsk: a number of ones from a position on; .wrap takes both operands modulo 32."""
    builder = lowering.builder
    position, length = (
        builder.flat(lowering.read(each, ScalarType.U32)) for each in instruction.operands[1:]
    )
    if "wrap" in instruction.modifiers:
        position = builder.binary("and", position, integer("i32", 31))
        length = builder.binary("and", length, integer("i32", 31))
    ones = _low_bits(builder, "i32", length)
    lowering.write(instruction.operands[0], shifted(builder, "shl", ones, position))


def _any_logic(lowering: Lowering, instruction: ir.Instruction) -> None:
    """lop3: any function of three bits, by its truth table."""
    builder = lowering.builder
    table = instruction.operands[4]
    if not isinstance(table, Integer) or len(instruction.operands) > 5:
        lowering.refuse(instruction)
    inputs = [lowering.read(each, ScalarType.B32) for each in instruction.operands[1:4]]
    result = lowering_table(builder, inputs, table.value & 0xFF)
    lowering.write(instruction.operands[0], result)


def lowering_table(builder: Builder, inputs: list[Value], table: int) -> Value:
    """The function with bit 4a + 2b + c of `table` as its value for bits a, b, c.

    Shannon expansion: f = c ? f1 : f0 for the first input on which it depends.
    """
    if not inputs:
        return integer("i32", -1 if table & 1 else 0)
    half = 1 << (len(inputs) - 1)
    zero_table, one_table = table & ((1 << half) - 1), table >> half
    everything = (1 << half) - 1
    if zero_table == one_table:
        return lowering_table(builder, inputs[1:], zero_table)
    first = inputs[0]
    if zero_table == one_table ^ everything:
        return builder.binary("xor", first, lowering_table(builder, inputs[1:], zero_table))
    inverse = builder.binary("xor", first, integer("i32", -1))
    on = builder.binary("and", first, lowering_table(builder, inputs[1:], one_table))
    off = builder.binary("and", inverse, lowering_table(builder, inputs[1:], zero_table))
    if zero_table == 0:
        return on
    if one_table == 0:
        return off
    return builder.binary("or", on, off)


EMITTERS: dict[str, Emitter] = {
    "and": _logic,
    "or": _logic,
    "xor": _logic,
    "not": _invert,
    "cnot": _is_zero,
    "shl": _shift,
    "shr": _shift,
    "shf": _funnel,
    "popc": _count,
    "clz": _count,
    "brev": _reverse,
    "bfind": _find,
    "bfe": _extract,
    "bfi": _insert,
    "bmsk": _mask,
    "lop3": _any_logic,
}
