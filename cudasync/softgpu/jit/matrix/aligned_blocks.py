"""Cellar, jit. A block of a tensor core's sum, for any numbers: aligned, truncated and added.

`matrix_arithmetic` says what is computed. A number is a fraction below two and an exponent. The
term of a product is its fractions' product times a power of two, converted to an integer, which
truncates. Sixteen terms, each below 2^27, stay below 2^31. What is carried is added in f64, where
the sum is exact.

Fractions of A and of what is carried are scaled, so that one shift makes the power of two; it is
zero for a term that has no bits left. Infinities and NaNs have themselves as fractions. Without
them the plain sum of the products of fractions is finite; with them that sum is the result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from cudasync.softgpu.semantics.matrix_arithmetic import (
    CANONICAL_NAN,
    KEPT_BITS,
    LEAST_EXPONENT,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cudasync.softgpu.jit.matrix.vector_text import VectorText

# A term whose exponent is this much less than the greatest has no bits left.
_REACH = 64
_SINGLE_BIAS, _DOUBLE_BIAS = 127, 1023
# The factor that makes 2^(64 - 127), the power for the greatest exponent, 2^25.
_SCALE = KEPT_BITS + _SINGLE_BIAS - _REACH
# A zero's exponent is less than any product's, and a sum's is at least the second number.
NO_EXPONENT = -1024
_LEAST_SUM = -300


class Number(NamedTuple):
    """The names of a float, or of a float's fraction, and of its exponent."""

    value: str
    exponent: str


def exponent_of(text: VectorText, value: str, type_: str) -> str:
    """The exponent of a float that came from an element of a type; 128 if it is not finite."""
    bits = text.convert("bitcast", "float", value, "i32")
    size = text.binary("and", "i32", bits, 0x7FFFFFFF)
    field = text.binary("lshr", "i32", size, 23)
    own = text.greater(text.binary("sub", "i32", field, _SINGLE_BIAS), LEAST_EXPONENT[type_])
    is_zero = text.binary("icmp eq", "i32", size, 0)
    return text.select(is_zero, "i32", text.constant("i32", NO_EXPONENT), own)


def fraction_of(text: VectorText, number: Number, *, is_scaled: bool) -> str:
    """The fraction of a float with its exponent."""
    scale = _SCALE if is_scaled else 0
    bits = text.convert("bitcast", "float", number.value, "i32")
    size = text.binary("and", "i32", bits, 0x7FFFFFFF)
    less = text.binary("sub", "i32", number.exponent, scale)
    normal = text.binary("sub", "i32", bits, text.binary("shl", "i32", less, 23))
    # A subnormal's fraction comes from an integer: arithmetic on subnormals is slow.
    whole = text.convert("sitofp", "i32", size, "float")
    tiny = text.binary("fmul", "float", whole, 2.0 ** (scale - 23))
    sign = text.binary("and", "i32", bits, -0x80000000)
    subnormal = text.binary("or", "i32", text.convert("bitcast", "float", tiny, "i32"), sign)
    is_subnormal = text.binary("icmp ult", "i32", size, 0x800000)
    finite = text.select(is_subnormal, "i32", subnormal, normal)
    is_special = text.binary("icmp uge", "i32", size, 0x7F800000)
    return text.convert("bitcast", "i32", text.select(is_special, "i32", bits, finite), "float")


def carry(text: VectorText, value: str, type_: str) -> Number:
    """The result of a block as what the next one starts with."""
    exponent = exponent_of(text, value, type_)
    return Number(fraction_of(text, Number(value, exponent), is_scaled=True), exponent)


def exponents_of(
    text: VectorText,
    products: Sequence[tuple[Number, Number]],
    carried: Number | None,
    least: int,
) -> tuple[list[str], str]:
    """The exponent of each product, and the greatest of these, of what is carried, and `least`."""
    exponents = [text.binary("add", "i32", x.exponent, y.exponent) for x, y in products]
    greatest = text.greater(exponents[0], least)
    for each in [*exponents[1:], *([carried.exponent] if carried else [])]:
        greatest = text.greater(each, greatest)
    return exponents, greatest


def block(
    text: VectorText,
    products: Sequence[tuple[Number, Number]],
    carried: Number | None,
    rounded_to: str,
) -> str:
    """The sum of products and of what is carried, as floats; the first of two factors is scaled."""
    exponents, greatest = exponents_of(text, products, carried, _LEAST_SUM)
    base = text.binary("sub", "i32", greatest, _REACH)
    total = plain = ""
    for (x, y), exponent in zip(products, exponents, strict=True):
        product = text.binary("fmul", "float", x.value, y.value)
        term = _term(text, product, exponent, base)
        total = text.binary("add", "i32", total, term) if total else term
        plain = text.binary("fadd", "float", plain, product) if plain else product
    total = text.convert("sitofp", "i32", total, "double")
    if carried:
        term = _term(text, carried.value, carried.exponent, base)
        wide = text.convert("sitofp", "i32", term, "double")
        total = text.binary("fadd", "double", total, wide)
        plain = text.binary("fadd", "float", plain, carried.value)
    value = scaled(text, total, greatest)
    result = _truncated(text, value, is_to_odd=rounded_to == "f16")
    if rounded_to == "f16":
        result = through_half(text, result)
    is_special = text.binary("fcmp ueq", "float", text.size("float", plain), float("inf"))
    return text.select(is_special, "float", plain, result)


def _term(text: VectorText, product: str, exponent: str, base: str) -> str:
    """The integer of an aligned term; any integer if the product is infinite or a NaN."""
    above = text.greater(text.binary("sub", "i32", exponent, base), 0)
    power = text.convert("bitcast", "i32", text.binary("shl", "i32", above, 23), "float")
    aligned = text.binary("fmul", "float", product, power)
    return text.convert("fptosi", "float", aligned, "i32")


def scaled(text: VectorText, total: str, greatest: str) -> str:
    """The value of a sum of terms: exact, since no exponent is beyond those of doubles."""
    field = text.binary("add", "i32", greatest, _DOUBLE_BIAS - KEPT_BITS)
    wide = text.convert("zext", "i32", field, "i64")
    power = text.convert("bitcast", "i64", text.binary("shl", "i64", wide, 52), "double")
    return text.binary("fmul", "double", total, power)


def _truncated(text: VectorText, value: str, *, is_to_odd: bool) -> str:
    """A double as a float, rounded to zero, or to odd if a further rounding follows.

    Infinite where the size is at least 2^128.
    """
    nearest = text.convert("fptrunc", "double", value, "float")
    back = text.convert("fpext", "float", nearest, "double")
    size = text.size("double", value)
    is_greater = text.binary("fcmp ogt", "double", text.size("double", back), size)
    is_finite = text.binary("fcmp olt", "double", size, 2.0**128)
    is_next = text.binary("and", "i1", is_greater, is_finite)
    bits = text.convert("bitcast", "float", nearest, "i32")
    bits = text.select(is_next, "i32", text.binary("sub", "i32", bits, 1), bits)
    if is_to_odd:
        # Sums that become f16 are far from 2^128, so an infinity cannot become a NaN here.
        bits = odd(text, bits, text.binary("fcmp one", "double", back, value))
    return text.convert("bitcast", "i32", bits, "float")


def odd(text: VectorText, bits: str, is_inexact: str) -> str:
    """The bits of a truncated float, odd where it is inexact, so that it can be rounded again.

    Boldo and Melquiond, "When double rounding is odd", 2005.
    """
    return text.select(is_inexact, "i32", text.binary("or", "i32", bits, 1), bits)


def through_half(text: VectorText, value: str) -> str:
    """A float rounded to f16, as a float."""
    return text.convert("fpext", "half", text.convert("fptrunc", "float", value, "half"), "float")


def canonical(text: VectorText, value: str) -> str:
    """A float with the one NaN that matrix products have."""
    is_nan = text.binary("fcmp uno", "float", value, value)
    bits = text.convert("bitcast", "float", value, "i32")
    nan = text.constant("i32", CANONICAL_NAN["f32"])
    return text.convert("bitcast", "i32", text.select(is_nan, "i32", nan, bits), "float")
