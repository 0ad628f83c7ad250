"""Cellar, jit. A block of a tensor core's sum for numbers whose exponents are near zero.

The bits are those of `aligned_blocks`, in about half of the operations. Products are floats, exact
and far from underflow, and one power of two aligns all of them. Sums are zero or normal, so that
clearing the low bits of a double truncates it to f32. Infinities and NaNs are not near.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.softgpu.jit.matrix.aligned_blocks import (
    NO_EXPONENT,
    Number,
    exponents_of,
    odd,
    scaled,
    through_half,
)
from cudasync.softgpu.semantics.matrix_arithmetic import KEPT_BITS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cudasync.softgpu.jit.matrix.vector_text import VectorText

# Exponents of factors are from -32 to 31, a power of two, and of C from -64 to 63. A sum that is
# not zero is at least 2^(-2 * 32 - 25), and what aligns it as a block's greatest term is 2^114.
_FACTOR_LIMIT = 32
_LEAST_SUM = -2 * _FACTOR_LIMIT - KEPT_BITS
# Eight terms and one more are below 2^31 together.
_TERMS_IN_INTEGERS = 8
_SINGLE_BIAS = 127
# The bits of a double's fraction beyond those of a float.
_SURPLUS_BITS = 52 - 23


def offset_of(text: VectorText, number: Number, *, is_factor: bool) -> str:
    """A number's exponent above the least near one, an i32; a zero is near.

    Bits beyond `offset_mask` are set in the offset of a number that is not near.
    """
    is_some = text.binary("icmp sgt", "i32", number.exponent, NO_EXPONENT)
    own = text.select(is_some, "i32", number.exponent, text.constant("i32", 0))
    return text.binary("add", "i32", own, _limit(is_factor=is_factor))


def offset_mask(*, is_factor: bool) -> int:
    """The bits that offsets of near numbers have."""
    return 2 * _limit(is_factor=is_factor) - 1


def _limit(*, is_factor: bool) -> int:
    return _FACTOR_LIMIT if is_factor else 2 * _FACTOR_LIMIT


def block(
    text: VectorText,
    products: Sequence[tuple[Number, Number]],
    carried: Number | None,
    rounded_to: str,
) -> str:
    """The sum of products and of what is carried, as floats."""
    _, greatest = exponents_of(text, products, carried, _LEAST_SUM)
    field = text.name(
        f"sub {text.type('i32')} {text.constant('i32', KEPT_BITS + _SINGLE_BIAS)}, {greatest}"
    )
    power = text.convert("bitcast", "i32", text.binary("shl", "i32", field, 23), "float")
    terms = [
        _term(text, text.binary("fmul", "float", x.value, y.value), power) for x, y in products
    ]
    beyond = carried
    if carried and len(products) <= _TERMS_IN_INTEGERS:
        terms.append(_term(text, carried.value, power))
        beyond = None
    sum_ = terms[0]
    for each in terms[1:]:
        sum_ = text.binary("add", "i32", sum_, each)
    total = text.convert("sitofp", "i32", sum_, "double")
    if beyond:
        wide = text.convert("sitofp", "i32", _term(text, beyond.value, power), "double")
        total = text.binary("fadd", "double", total, wide)
    result = _rounded(text, scaled(text, total, greatest), rounded_to)
    if not carried or rounded_to == "f32":
        return result
    # The block before may have overflown in f16.
    size = text.size("float", carried.value)
    is_infinite = text.binary("fcmp oeq", "float", size, float("inf"))
    return text.select(is_infinite, "float", carried.value, result)


def _term(text: VectorText, value: str, power: str) -> str:
    return text.convert("fptosi", "float", text.binary("fmul", "float", value, power), "i32")


def _rounded(text: VectorText, value: str, rounded_to: str) -> str:
    bits = text.convert("bitcast", "double", value, "i64")
    kept = text.binary("and", "i64", bits, -1 << _SURPLUS_BITS)
    truncated = text.convert("bitcast", "i64", kept, "double")
    result = text.convert("fptrunc", "double", truncated, "float")
    if rounded_to == "f32":
        return result
    is_inexact = text.binary("icmp ne", "i64", kept, bits)
    result_bits = text.convert("bitcast", "float", result, "i32")
    result = text.convert("bitcast", "i32", odd(text, result_bits, is_inexact), "float")
    return through_half(text, result)
