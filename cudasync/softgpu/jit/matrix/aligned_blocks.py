"""Cellar, jit. The text of a tensor core's sum: blocks of products that are aligned and truncated.

`matrix_arithmetic` says what is computed. A number is held as a factor: a fraction below two, and
an exponent. The term of a product is its fractions' product times a power of two, converted to an
integer, which truncates. Sixteen terms, each below 2^27, stay below 2^31. C is added in f64, where
the sum is exact.

Fractions of A and C are scaled, so that one shift makes the power of two; it is zero for a term
that has no bits left. Infinities and NaNs have themselves as fractions. Without them the plain sum
of the products of fractions is finite; with them that sum is the result.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from cudasync.softgpu.semantics.matrix_arithmetic import (
    CANONICAL_NAN,
    KEPT_BITS,
    LEAST_EXPONENT,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

# A term whose exponent is this much less than the greatest has no bits left.
_REACH = 64
_SINGLE_BIAS, _DOUBLE_BIAS = 127, 1023
# The factor that makes 2^(64 - 127), the power for the greatest exponent, 2^25.
_SCALE = KEPT_BITS + _SINGLE_BIAS - _REACH
# A zero's exponent is less than any product's, and a sum's is at least the second number.
_NO_EXPONENT, _LEAST_SUM = -1024, -300


class Factor(NamedTuple):
    """The names of a fraction and an exponent."""

    fraction: str
    exponent: str


class Lines:
    """Lines of text that compute with vectors of `lanes` elements, or with single ones."""

    def __init__(self, prefix: str, lanes: int = 1) -> None:
        self.lines: list[str] = []
        self.declarations: set[str] = set()
        self._prefix = prefix
        self._lanes = lanes

    def type(self, element: str) -> str:
        return element if self._lanes == 1 else f"<{self._lanes} x {element}>"

    def constant(self, element: str, value: float) -> str:
        """A constant in every lane."""
        bits = int.from_bytes(struct.pack(">d", value), "big")
        text = f"{value}" if element[0] == "i" else f"0x{bits:016X}"
        if self._lanes == 1:
            return text
        return "<" + ", ".join(f"{element} {text}" for _ in range(self._lanes)) + ">"

    def name(self, text: str) -> str:
        """The name of a value, the result of `text`."""
        result = f"%{self._prefix}.{len(self.lines)}"
        self.lines.append(f"{result} = {text}")
        return result

    def binary(self, operation: str, element: str, first: str, second: str | float) -> str:
        other = second if isinstance(second, str) else self.constant(element, second)
        return self.name(f"{operation} {self.type(element)} {first}, {other}")

    def convert(self, operation: str, before: str, value: str, after: str) -> str:
        return self.name(f"{operation} {self.type(before)} {value} to {self.type(after)}")

    def select(self, condition: str, element: str, first: str, second: str) -> str:
        type_ = self.type(element)
        return self.name(
            f"select {self.type('i1')} {condition}, {type_} {first}, {type_} {second}"
        )

    def greater(self, first: str, second: str | float) -> str:
        """The maximum of signed integers."""
        other = second if isinstance(second, str) else self.constant("i32", second)
        return self.select(self.binary("icmp sgt", "i32", first, other), "i32", first, other)

    def size(self, element: str, value: str) -> str:
        """The absolute value of a float."""
        type_ = self.type(element)
        suffix = {"float": "f32", "double": "f64"}[element]
        vector = "" if self._lanes == 1 else f"v{self._lanes}"
        name = f"@llvm.fabs.{vector}{suffix}"
        self.declarations.add(f"declare {type_} {name}({type_})")
        return self.name(f"call {type_} {name}({type_} {value})")


def split(text: Lines, value: str, type_: str, *, is_scaled: bool) -> Factor:
    """A float that came from an element of a type, as a factor."""
    scale, least = _SCALE if is_scaled else 0, LEAST_EXPONENT[type_]
    bits = text.convert("bitcast", "float", value, "i32")
    size = text.binary("and", "i32", bits, 0x7FFFFFFF)
    field = text.binary("lshr", "i32", size, 23)
    held = text.greater(text.binary("sub", "i32", field, _SINGLE_BIAS), least)
    is_zero = text.binary("icmp eq", "i32", size, 0)
    exponent = text.select(is_zero, "i32", text.constant("i32", _NO_EXPONENT), held)
    moved = text.binary("shl", "i32", text.binary("sub", "i32", held, scale), 23)
    normal = text.binary("sub", "i32", bits, moved)
    # A subnormal's fraction comes from an integer: arithmetic on subnormals is slow.
    whole = text.convert("sitofp", "i32", size, "float")
    tiny = text.convert(
        "bitcast", "float", text.binary("fmul", "float", whole, 2.0 ** (scale - 23)), "i32"
    )
    sign = text.binary("and", "i32", bits, -0x80000000)
    subnormal = text.binary("or", "i32", tiny, sign)
    is_subnormal = text.binary("icmp eq", "i32", field, 0)
    finite = text.select(is_subnormal, "i32", subnormal, normal)
    is_special = text.binary("icmp eq", "i32", field, 255)
    chosen = text.select(is_special, "i32", bits, finite)
    return Factor(text.convert("bitcast", "i32", chosen, "float"), exponent)


def block(
    text: Lines, products: Sequence[tuple[Factor, Factor]], carried: Factor | None, rounded_to: str
) -> str:
    """The sum of products and of what is carried, as floats; the first of two factors is scaled."""
    exponents = [text.binary("add", "i32", x.exponent, y.exponent) for x, y in products]
    greatest = text.greater(exponents[0], _LEAST_SUM)
    for each in [*exponents[1:], *([carried.exponent] if carried else [])]:
        greatest = text.greater(each, greatest)
    base = text.binary("sub", "i32", greatest, _REACH)
    total = plain = ""
    for (x, y), exponent in zip(products, exponents, strict=True):
        product = text.binary("fmul", "float", x.fraction, y.fraction)
        term = _term(text, product, exponent, base)
        total = text.binary("add", "i32", total, term) if total else term
        plain = text.binary("fadd", "float", plain, product) if plain else product
    total = text.convert("sitofp", "i32", total, "double")
    if carried:
        term = _term(text, carried.fraction, carried.exponent, base)
        wide = text.convert("sitofp", "i32", term, "double")
        total = text.binary("fadd", "double", total, wide)
        plain = text.binary("fadd", "float", plain, carried.fraction)
    result = _truncated(text, _scaled(text, total, greatest), is_to_odd=rounded_to == "f16")
    if rounded_to == "f16":
        result = text.convert("fptrunc", "float", result, "half")
        result = text.convert("fpext", "half", result, "float")
    is_special = text.binary("fcmp ueq", "float", text.size("float", plain), float("inf"))
    return text.select(is_special, "float", plain, result)


def _term(text: Lines, product: str, exponent: str, base: str) -> str:
    """The integer of an aligned term; any integer if the product is infinite or a NaN."""
    above = text.greater(text.binary("sub", "i32", exponent, base), 0)
    power = text.convert("bitcast", "i32", text.binary("shl", "i32", above, 23), "float")
    aligned = text.binary("fmul", "float", product, power)
    return text.convert("fptosi", "float", aligned, "i32")


def _scaled(text: Lines, total: str, greatest: str) -> str:
    """The value of a sum of terms: exact, since no exponent is beyond those of doubles."""
    field = text.binary("add", "i32", greatest, _DOUBLE_BIAS - KEPT_BITS)
    wide = text.convert("zext", "i32", field, "i64")
    power = text.convert("bitcast", "i64", text.binary("shl", "i64", wide, 52), "double")
    return text.binary("fmul", "double", total, power)


def _truncated(text: Lines, value: str, *, is_to_odd: bool) -> str:
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
        is_inexact = text.binary("fcmp one", "double", back, value)
        bits = text.select(is_inexact, "i32", text.binary("or", "i32", bits, 1), bits)
    return text.convert("bitcast", "i32", bits, "float")


def canonical(text: Lines, value: str) -> str:
    """A float with the one NaN that matrix products have."""
    is_nan = text.binary("fcmp uno", "float", value, value)
    bits = text.convert("bitcast", "float", value, "i32")
    nan = text.constant("i32", CANONICAL_NAN["f32"])
    return text.convert("bitcast", "i32", text.select(is_nan, "i32", nan, bits), "float")
