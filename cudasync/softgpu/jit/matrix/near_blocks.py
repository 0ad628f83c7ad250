"""Cellar, jit. A block of a tensor core's sum for numbers whose exponents are near zero.

The bits are those of `aligned_blocks`, in about half of the operations. Products are floats, exact
and far from underflow, and one power of two aligns all of them. Sums are zero or normal, so that
clearing the low bits of a double truncates it to f32. Infinities and NaNs are not near.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.softgpu.jit.matrix.aligned_blocks import Number, odd, scaled, through_half
from cudasync.softgpu.semantics.matrix_arithmetic import KEPT_BITS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cudasync.softgpu.jit.matrix.vector_text import VectorText

# The greatest size of a factor's exponent. A sum that is not zero is at least
# 2^(-2 * 37 - 25), and the power that aligns it as a block's greatest term is 2^124.
_FACTOR_LIMIT = 37
_LEAST_SUM = -2 * _FACTOR_LIMIT - KEPT_BITS
# Eight terms and one more are below 2^31 together.
_TERMS_IN_INTEGERS = 8
_SINGLE_BIAS = 127
# The bits of a double's fraction beyond those of a float.
_SURPLUS_BITS = 52 - 23


def far_bit(text: VectorText, number: Number, *, is_factor: bool) -> str:
    """1 if a number is neither zero nor near, else 0, as i32."""
    limit = _FACTOR_LIMIT if is_factor else 2 * _FACTOR_LIMIT
    bits = text.convert("bitcast", "float", number.value, "i32")
    is_some = text.binary("icmp ne", "i32", text.binary("shl", "i32", bits, 1), 0)
    shifted = text.binary("add", "i32", number.exponent, limit)
    is_outside = text.binary("icmp ugt", "i32", shifted, 2 * limit)
    return text.convert("zext", "i1", text.binary("and", "i1", is_some, is_outside), "i32")


def block(
    text: VectorText,
    products: Sequence[tuple[Number, Number]],
    carried: Number | None,
    rounded_to: str,
) -> str:
    """The sum of products and of what is carried, as floats."""
    exponents = [text.binary("add", "i32", x.exponent, y.exponent) for x, y in products]
    greatest = text.greater(exponents[0], _LEAST_SUM)
    for each in [*exponents[1:], *([carried.exponent] if carried else [])]:
        greatest = text.greater(each, greatest)
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
