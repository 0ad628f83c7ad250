"""Cellar, jit. Half precision: packed pairs, and sums that must be rounded once.

An f16x2 register is 32 bits; each half is computed as f16 by the operation for scalars.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.ptx.types import ScalarType
from cudasync.softgpu.jit.values import Value, integer

if TYPE_CHECKING:
    from collections.abc import Callable

    from cudasync.ptx import ir
    from cudasync.softgpu.jit.builder import Builder
    from cudasync.softgpu.jit.lowering import Lowering


def is_packed(type_: ScalarType) -> bool:
    return type_ is ScalarType.F16X2


def unpack(builder: Builder, value: Value) -> tuple[Value, Value]:
    """The low and the high half of packed bits."""
    value = builder.flat(value)
    low = builder.truncate(value, "i16")
    high = builder.truncate(builder.binary("lshr", value, integer("i32", 16)), "i16")
    return builder.bitcast(low, "half"), builder.bitcast(high, "half")


def pack(builder: Builder, low: Value, high: Value) -> Value:
    """Packed bits of two halves."""
    wide = [
        builder.extend(builder.bitcast(each, "i16"), "i32", is_signed=False) for each in (low, high)
    ]
    return builder.binary("or", wide[0], builder.binary("shl", wide[1], integer("i32", 16)))


def packed(
    lowering: Lowering,
    instruction: ir.Instruction,
    operation: Callable[[list[Value]], Value],
) -> None:
    """Apply `operation` to both halves."""
    if not {"sat", "ftz", "relu"}.isdisjoint(instruction.modifiers):
        lowering.refuse(instruction)
    builder = lowering.builder
    pairs = [
        unpack(builder, lowering.read(each, instruction.type)) for each in instruction.operands[1:]
    ]
    low = operation([pair[0] for pair in pairs])
    high = operation([pair[1] for pair in pairs])
    lowering.write(instruction.operands[0], pack(builder, low, high))


def fused(builder: Builder, first: Value, second: Value, third: Value) -> Value:
    """a * b + c in f16, rounded once.

    The product of two halves is exact in f64, and so is the sum unless the two differ by more
    than 2**40; rounding to odd on the way through f32 keeps the final rounding right.
    """
    wide = [
        builder.apply("fpext {T} {0} to {R}", "double", each) for each in (first, second, third)
    ]
    return narrow(builder, builder.intrinsic("fma", "double", *wide))


def narrow(builder: Builder, value: Value) -> Value:
    """An f64 as f16, rounded once.

    Through f32 rounded to odd (Boldo and Melquiond, "When double rounding is odd", 2005),
    because LLVM would call a library function that a process need not have.
    """
    nearest = builder.apply("fptrunc {T} {0} to {R}", "float", value)
    back = builder.apply("fpext {T} {0} to {R}", "double", nearest)
    bits = builder.bitcast(nearest, "i32")
    too_large = builder.compare(
        "fcmp ogt",
        builder.intrinsic("fabs", "double", back),
        builder.intrinsic("fabs", "double", value),
    )
    is_inexact = builder.compare("fcmp one", back, value)
    lower = builder.binary("sub", bits, integer("i32", 1))
    truncated = builder.select(too_large, lower, bits)
    odd = builder.binary("or", truncated, integer("i32", 1))
    chosen = builder.select(is_inexact, odd, bits)
    return builder.apply("fptrunc {T} {0} to {R}", "half", builder.bitcast(chosen, "float"))


def narrow_directed(builder: Builder, value: Value, mode: str) -> Value:
    """An f32 or f64 as f16, rounded towards zero (rz), down (rm) or up (rp)."""
    if value.type == "double":
        nearest = narrow(builder, value)
    else:
        nearest = builder.apply("fptrunc {T} {0} to {R}", "half", value)
    back = builder.apply("fpext {T} {0} to {R}", value.type, nearest)
    bits = builder.bitcast(nearest, "i16")
    is_negative = builder.compare("icmp slt", bits, integer("i16", 0))
    too_high = builder.compare("fcmp ogt", back, value)
    too_low = builder.compare("fcmp olt", back, value)
    # One step in the bits is one step in size; rounding to nearest keeps the sign.
    smaller = builder.bitcast(builder.binary("sub", bits, integer("i16", 1)), "half")
    larger = builder.bitcast(builder.binary("add", bits, integer("i16", 1)), "half")
    if mode == "rm":
        return builder.select(too_high, builder.select(is_negative, larger, smaller), nearest)
    if mode == "rp":
        return builder.select(too_low, builder.select(is_negative, smaller, larger), nearest)
    outward = builder.select(is_negative, too_low, too_high)
    return builder.select(outward, smaller, nearest)
