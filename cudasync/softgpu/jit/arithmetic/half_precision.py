"""Cellar, jit. Half precision: sums and conversions that must round only once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.softgpu.jit.vector_ir.values import Value, integer

if TYPE_CHECKING:
    from cudasync.softgpu.jit.vector_ir.builder import Builder


def pack(builder: Builder, low: Value, high: Value) -> Value:
    """Packed bits of two halves."""
    wide = [
        builder.extend(builder.bitcast(each, "i16"), "i32", is_signed=False) for each in (low, high)
    ]
    return builder.binary("or", wide[0], builder.binary("shl", wide[1], integer("i32", 16)))


def fused(builder: Builder, first: Value, second: Value, third: Value) -> Value:
    """a * b + c in f16, rounded once.

    The product of two halves is exact in f64. So is the sum, unless product and addend differ by
    more than 2**40. Rounding to odd on the way through f32 keeps the final rounding right.
    """
    wide = [
        builder.apply("fpext {T} {0} to {R}", "double", each) for each in (first, second, third)
    ]
    return narrow(builder, builder.intrinsic("fma", "double", *wide))


def narrow(builder: Builder, value: Value) -> Value:
    """An f64 as f16, rounded once, without the library function that LLVM would call."""
    odd = to_odd_float(builder, value)
    return builder.apply("fptrunc {T} {0} to {R}", "half", odd)


def to_odd_float(builder: Builder, value: Value) -> Value:
    """An f64 as an f32 rounded to odd, so that a further rounding is correct.

    Boldo and Melquiond, "When double rounding is odd", 2005.
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
    return builder.bitcast(builder.select(is_inexact, odd, bits), "float")


def canonical(builder: Builder, value: Value) -> Value:
    """A half; every NaN becomes 0x7FFF, as in hardware."""
    bits = builder.bitcast(value, "i16")
    size = builder.binary("and", bits, integer("i16", 0x7FFF))
    is_nan = builder.compare("icmp ugt", size, integer("i16", 0x7C00))
    return builder.bitcast(builder.select(is_nan, integer("i16", 0x7FFF), bits), "half")


def finite(builder: Builder, value: Value) -> Value:
    """.satfinite: an infinity becomes the greatest number."""
    bits = builder.bitcast(value, "i16")
    size = builder.binary("and", bits, integer("i16", 0x7FFF))
    is_infinite = builder.compare("icmp eq", size, integer("i16", 0x7C00))
    # The greatest number is one step below infinity, for either sign.
    most = builder.binary("sub", bits, integer("i16", 1))
    return builder.bitcast(builder.select(is_infinite, most, bits), "half")


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
