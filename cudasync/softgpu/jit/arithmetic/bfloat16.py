"""Cellar, jit. Conversion and arithmetic of bf16, the upper half of an f32.

Registers hold its 16 bits. The sum or product of two is computed as f32: with 24 bits of precision,
more than 2 * 8 + 2, rounding twice equals rounding once (Figueroa, "When is double rounding
innocuous?", 1995). A fused multiply-add needs more care, see `fused`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.softgpu.jit.arithmetic.half_precision import to_odd_float
from cudasync.softgpu.jit.vector_ir.values import Value, integer, uniform

if TYPE_CHECKING:
    from cudasync.softgpu.jit.vector_ir.builder import Builder

NAN = 0x7FFF
_MOST = 0x7F7F


def widen(builder: Builder, value: Value) -> Value:
    """bf16 bits as f32."""
    wide = builder.extend(builder.flat(value), "i32", is_signed=False)
    shifted = builder.binary("shl", builder.flat(wide), integer("i32", 16))
    return builder.bitcast(shifted, "float")


def narrow(builder: Builder, value: Value, mode: str = "rn", *, nan: int = NAN) -> Value:
    """An f32 or f64 as bf16 bits, rounded once; a NaN becomes `nan`."""
    if value.type == "double":
        value = to_odd_float(builder, value)
    result = builder.binary("lshr", rounded_bits(builder, value, 16, mode), integer("i32", 16))
    is_nan = builder.compare("fcmp uno", value, value)
    return builder.select(is_nan, integer("i16", nan), builder.truncate(result, "i16"))


def rounded_bits(builder: Builder, value: Value, dropped: int, mode: str) -> Value:
    """The bits of an f32 after rounding off `dropped` bits, which keep arbitrary values.

    A carry correctly runs into the exponent, and from the greatest number to infinity.
    """
    bits = builder.bitcast(value, "i32")
    below = (1 << dropped) - 1
    if mode == "rz":
        return bits
    if mode == "rna":
        return builder.binary("add", bits, integer("i32", 1 << (dropped - 1)))
    if mode == "rn":
        last = builder.binary("lshr", bits, integer("i32", dropped))
        last = builder.binary("and", last, integer("i32", 1))
        up = builder.binary("add", last, integer("i32", below >> 1))
        return builder.binary("add", bits, up)
    # Down and up: away from zero for one sign. An infinity has zero bits below, so none carries.
    relation = "icmp slt" if mode == "rm" else "icmp sge"
    is_away = builder.compare(relation, bits, integer("i32", 0))
    up = builder.select(is_away, integer("i32", below), integer("i32", 0))
    return builder.binary("add", bits, up)


def finite(builder: Builder, value: Value) -> Value:
    """.satfinite: an infinity becomes the greatest number; NaN bits stay."""
    size = builder.binary("and", value, integer("i16", 0x7FFF))
    is_infinite = builder.compare("icmp eq", size, integer("i16", 0x7F80))
    sign = builder.binary("and", value, integer("i16", -0x8000))
    most = builder.binary("or", sign, integer("i16", _MOST))
    return builder.select(is_infinite, most, value)


def fused(builder: Builder, first: Value, second: Value, third: Value) -> Value:
    """first * second + third of bf16 values given as f32: an f64 rounded to odd.

    The product is exact in f64. If the sum is not, its last bit must be set, or a later rounding
    may take it for a tie. Knuth's TwoSum gives the error of the sum exactly.
    """
    wide = [
        builder.apply("fpext {T} {0} to {R}", "double", each) for each in (first, second, third)
    ]
    product = builder.binary("fmul", wide[0], wide[1])
    total = builder.binary("fadd", product, wide[2])
    part = builder.binary("fsub", total, product)
    rest = builder.binary("fsub", product, builder.binary("fsub", total, part))
    error = builder.binary("fadd", rest, builder.binary("fsub", wide[2], part))
    nothing = uniform("double", "0.0")
    is_inexact = builder.compare("fcmp one", error, nothing)
    bits, error_bits = builder.bitcast(total, "i64"), builder.bitcast(error, "i64")
    last = builder.binary("and", bits, integer("i64", 1))
    is_even = builder.compare("icmp eq", last, integer("i64", 0))
    signs = builder.binary("xor", bits, error_bits)
    is_outward = builder.compare("icmp sge", signs, integer("i64", 0))
    step = builder.select(is_outward, integer("i64", 1), integer("i64", -1))
    moved = builder.binary("add", bits, step)
    odd = builder.select(builder.binary("and", is_inexact, is_even), moved, bits)
    return builder.bitcast(odd, "double")
