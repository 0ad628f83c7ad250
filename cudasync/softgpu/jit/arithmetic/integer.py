"""Cellar, jit. Integer arithmetic: add sub mul mad, div rem, min max abs neg, and wide forms.

Division never traps. As in hardware, division by zero gives all ones as quotient and as remainder.
The least integer divided by minus one gives itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.softgpu.jit.arithmetic import carry_flag, floating_point
from cudasync.softgpu.jit.vector_ir.values import Value, bits_of, integer

if TYPE_CHECKING:
    from cudasync.ptx import ir
    from cudasync.softgpu.jit.vector_ir.builder import Builder
    from cudasync.softgpu.jit.vector_ir.lowering_context import Emitter, Lowering


def by_type(of_integers: Emitter, of_floats: Emitter) -> Emitter:
    """An emitter that chooses between two, for integers and for floats, by type."""

    def emit(lowering: Lowering, instruction: ir.Instruction) -> None:
        if not instruction.types:
            lowering.refuse(instruction)
        chosen = of_floats if instruction.type.is_float else of_integers
        chosen(lowering, instruction)

    return emit


def operands(lowering: Lowering, instruction: ir.Instruction) -> list[Value]:
    """The source operands, in the instruction's type."""
    return [lowering.read(each, instruction.type) for each in instruction.operands[1:]]


def _add(lowering: Lowering, instruction: ir.Instruction) -> None:
    if "cc" in instruction.modifiers:
        carry_flag.add(lowering, instruction)
        return
    first, second = operands(lowering, instruction)
    if "sat" in instruction.modifiers:
        result = lowering.builder.intrinsic("sadd.sat", first.type, first, second)
    else:
        result = lowering.builder.add(first, second)
    lowering.write(instruction.operands[0], result)


def _subtract(lowering: Lowering, instruction: ir.Instruction) -> None:
    if "cc" in instruction.modifiers:
        carry_flag.subtract(lowering, instruction)
        return
    first, second = operands(lowering, instruction)
    if "sat" in instruction.modifiers:
        result = lowering.builder.intrinsic("ssub.sat", first.type, first, second)
    else:
        result = lowering.builder.subtract(first, second)
    lowering.write(instruction.operands[0], result)


def product(lowering: Lowering, instruction: ir.Instruction) -> Value:
    """The part of operand 1 times operand 2 that .lo, .hi or .wide selects."""
    builder = lowering.builder
    type_ = instruction.type
    first = lowering.read(instruction.operands[1], type_)
    second = lowering.read(instruction.operands[2], type_)
    if "hi" not in instruction.modifiers and "wide" not in instruction.modifiers:
        return builder.multiply(first, second)
    double = f"i{2 * type_.bits}"
    if first.literal is not None:
        first, second = second, first
    wide = builder.multiply(
        builder.extend(first, double, is_signed=type_.is_signed),
        builder.extend(second, double, is_signed=type_.is_signed),
    )
    if "wide" in instruction.modifiers:
        return wide
    high = builder.binary("lshr", builder.flat(wide), integer(double, type_.bits))
    return builder.truncate(high, first.type)


def _multiply(lowering: Lowering, instruction: ir.Instruction) -> None:
    lowering.write(instruction.operands[0], product(lowering, instruction))


def _multiply_add(lowering: Lowering, instruction: ir.Instruction) -> None:
    if "cc" in instruction.modifiers:
        carry_flag.multiply_add(lowering, instruction)
        return
    builder = lowering.builder
    value = product(lowering, instruction)
    addend = lowering.load_as(instruction.operands[3], value.type)
    if "sat" in instruction.modifiers:
        result = builder.intrinsic("sadd.sat", value.type, value, addend)
    else:
        result = builder.add(value, addend)
    lowering.write(instruction.operands[0], result)


def _multiply_24(lowering: Lowering, instruction: ir.Instruction) -> None:
    """mul24 and mad24: the low 24 bits of both factors; .hi takes bits 16 to 47."""
    builder = lowering.builder
    is_signed = instruction.type.is_signed
    factors = []
    for operand in instruction.operands[1:3]:
        value = lowering.read(operand, instruction.type)
        shifted = builder.binary("shl", value, integer("i32", 8))
        low = builder.binary("ashr" if is_signed else "lshr", shifted, integer("i32", 8))
        factors.append(builder.extend(builder.flat(low), "i64", is_signed=is_signed))
    wide = builder.binary("mul", *factors)
    if "hi" in instruction.modifiers:
        wide = builder.binary("lshr", wide, integer("i64", 16))
    result = builder.truncate(wide, "i32")
    if instruction.opcode == "mad24":
        addend = lowering.read(instruction.operands[3], instruction.type)
        name = "sadd.sat" if "sat" in instruction.modifiers else ""
        result = (
            builder.intrinsic(name, "i32", result, addend) if name else builder.add(result, addend)
        )
    lowering.write(instruction.operands[0], result)


def quotient(
    builder: Builder, first: Value, second: Value, *, is_signed: bool
) -> tuple[Value, Value]:
    """Quotient and remainder, without an undefined case."""
    type_ = first.type
    bits = bits_of(type_)
    if second.literal not in (None, 0, -1):
        sign = "s" if is_signed else "u"
        return builder.binary(f"{sign}div", first, second), builder.binary(
            f"{sign}rem", first, second
        )
    is_zero = builder.compare("icmp eq", second, integer(type_, 0))
    divisor = builder.select(is_zero, integer(type_, 1), second)
    if is_signed:
        # The least integer has no positive counterpart: divide by 1 instead, and negate.
        is_minus_one = builder.compare("icmp eq", second, integer(type_, -1))
        divisor = builder.select(is_minus_one, integer(type_, 1), divisor)
        plain = _divide(builder, first, divisor, bits, is_signed=True)
        negated = builder.binary("sub", integer(type_, 0), first)
        plain = builder.select(is_minus_one, negated, plain)
    else:
        plain = _divide(builder, first, divisor, bits, is_signed=False)
    result = builder.select(is_zero, integer(type_, -1), plain)
    rest = builder.binary("sub", first, builder.binary("mul", plain, second))
    return result, builder.select(is_zero, integer(type_, -1), rest)


def _divide(builder: Builder, first: Value, second: Value, bits: int, *, is_signed: bool) -> Value:
    """Divide by a number that is neither 0 nor -1.

    Vectors of at most 32 bits go through double. The nearest double to a quotient of 32-bit
    integers is never on the wrong side of an integer: integers are at least 2**-32 away, and the
    quotient is below 2**32, well inside 53 bits.
    """
    sign = "s" if is_signed else "u"
    if bits > 32 or (first.is_uniform and second.is_uniform):
        return builder.binary(f"{sign}div", first, second)
    wide = [
        builder.apply(f"{sign}itofp {{T}} {{0}} to {{R}}", "double", each)
        for each in (first, second)
    ]
    exact = builder.binary("fdiv", *wide)
    return builder.apply(f"fpto{sign}i {{T}} {{0}} to {{R}}", first.type, exact)


def _divide_or_rest(lowering: Lowering, instruction: ir.Instruction) -> None:
    builder = lowering.builder
    first, second = operands(lowering, instruction)
    result, rest = quotient(
        builder, builder.flat(first), builder.flat(second), is_signed=instruction.type.is_signed
    )
    wanted = rest if instruction.opcode == "rem" else result
    lowering.write(instruction.operands[0], wanted)


def _least_or_most(lowering: Lowering, instruction: ir.Instruction) -> None:
    first, second = operands(lowering, instruction)
    sign = "s" if instruction.type.is_signed else "u"
    result = lowering.builder.intrinsic(f"{sign}{instruction.opcode}", first.type, first, second)
    if "relu" in instruction.modifiers:
        result = lowering.builder.intrinsic("smax", first.type, result, integer(first.type, 0))
    lowering.write(instruction.operands[0], result)


def _absolute(lowering: Lowering, instruction: ir.Instruction) -> None:
    (value,) = operands(lowering, instruction)
    result = lowering.builder.intrinsic("abs", value.type, value, flag="false")
    lowering.write(instruction.operands[0], result)


def _negate(lowering: Lowering, instruction: ir.Instruction) -> None:
    (value,) = operands(lowering, instruction)
    result = lowering.builder.subtract(integer(value.type, 0), value)
    lowering.write(instruction.operands[0], result)


def _sum_of_difference(lowering: Lowering, instruction: ir.Instruction) -> None:
    """sad: c + |a - b|."""
    builder = lowering.builder
    first, second, third = operands(lowering, instruction)
    sign = "s" if instruction.type.is_signed else "u"
    high = builder.intrinsic(f"{sign}max", first.type, first, second)
    low = builder.intrinsic(f"{sign}min", first.type, first, second)
    distance = builder.binary("sub", high, low)
    lowering.write(instruction.operands[0], builder.add(distance, third))


EMITTERS: dict[str, Emitter] = {
    "add": by_type(_add, floating_point.add),
    "sub": by_type(_subtract, floating_point.subtract),
    "mul": by_type(_multiply, floating_point.multiply),
    "mad": by_type(_multiply_add, floating_point.fused),
    "fma": floating_point.fused,
    "mul24": _multiply_24,
    "mad24": _multiply_24,
    "div": by_type(_divide_or_rest, floating_point.divide),
    "rem": _divide_or_rest,
    "min": by_type(_least_or_most, floating_point.least_or_most),
    "max": by_type(_least_or_most, floating_point.least_or_most),
    "abs": by_type(_absolute, floating_point.absolute),
    "neg": by_type(_negate, floating_point.negate),
    "sad": _sum_of_difference,
    "addc": carry_flag.add,
    "subc": carry_flag.subtract,
    "madc": carry_flag.multiply_add,
}
