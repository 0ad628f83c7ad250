"""What an H200 computes for one element of a matrix product, from bits to bits, with fractions.

A third account of the rules in `cudasync/softgpu/semantics/matrix_arithmetic.py`, slow and plain,
which shares no code with the two lowerings.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

# Bits of exponent and of fraction.
FORMATS = {"f32": (8, 23), "tf32": (8, 10), "bf16": (8, 7), "f16": (5, 10), "e5m2": (5, 2)}
NAN, ZERO = "nan", Fraction(0)


@dataclass(frozen=True)
class Float:
    """A number: `value` is a fraction, or one of "inf", "-inf" and "nan"."""

    value: Fraction | str
    exponent: int = 0
    """Of a subnormal, the least exponent of its type."""

    @property
    def is_finite(self) -> bool:
        return isinstance(self.value, Fraction)


def decode(type_: str, bits: int) -> Float:
    """The number that an element holds."""
    if type_ == "e4m3":
        return decode("f16", _half_of_e4m3(bits))
    exponent_bits, fraction_bits = FORMATS[type_]
    if type_ == "tf32":
        bits >>= 13
    bias = 2 ** (exponent_bits - 1) - 1
    field = bits >> fraction_bits & (2**exponent_bits - 1)
    fraction = bits & (2**fraction_bits - 1)
    sign = -1 if bits >> (exponent_bits + fraction_bits) else 1
    if field == 2**exponent_bits - 1:
        return Float(NAN if fraction else "inf" if sign > 0 else "-inf")
    exponent = max(field, 1) - bias
    significand = Fraction(fraction, 2**fraction_bits) + (1 if field else 0)
    return Float(sign * significand * Fraction(2) ** exponent, exponent)


def _half_of_e4m3(bits: int) -> int:
    sign, field, fraction = bits >> 7, bits >> 3 & 15, bits & 7
    if (field, fraction) == (15, 7):
        return 0x7FFF
    if field:
        return sign << 15 | (field + 8) << 10 | fraction << 7
    if not fraction:
        return sign << 15
    # A subnormal, fraction * 2^-9, is a normal half.
    shift = 4 - fraction.bit_length()
    return sign << 15 | (9 - shift) << 10 | (fraction << shift & 7) << 7


def encode(type_: str, value: Fraction, *, is_truncated: bool) -> int:
    """The bits of a fraction, rounded to zero or to the nearest; infinite if it does not fit."""
    exponent_bits, fraction_bits = FORMATS[type_]
    bias = 2 ** (exponent_bits - 1) - 1
    sign = int(value < 0) << (exponent_bits + fraction_bits)
    if not value:
        return 0
    above = value.numerator.bit_length() - value.denominator.bit_length()
    # One of two neighbours is the exponent; a subnormal has the least.
    exponent = max(above if abs(value) >= Fraction(2) ** above else above - 1, 1 - bias)
    count = abs(value) / Fraction(2) ** (exponent - fraction_bits)
    steps = int(count) if is_truncated else round(count)
    # Steps of one in the bits are steps of one in size, across exponents too.
    bits = steps + ((exponent + bias - 1) << fraction_bits)
    return sign | min(bits, (2**exponent_bits - 1) << fraction_bits)


def special(type_: str, value: str) -> int:
    """The bits of an infinity or a NaN."""
    exponent_bits, fraction_bits = FORMATS[type_]
    if value == NAN:
        return 2 ** (exponent_bits + fraction_bits) - 1
    sign = int(value == "-inf") << (exponent_bits + fraction_bits)
    return sign | (2**exponent_bits - 1) << fraction_bits


def sum_of_specials(numbers: list[Float]) -> str:
    """The sum of numbers of which one is not finite."""
    kinds = {each.value for each in numbers if not each.is_finite}
    return kinds.pop() if len(kinds) == 1 else NAN


def product(x: Float, y: Float) -> Float:
    """An exact product, with the sum of the exponents."""
    if x.is_finite and y.is_finite:
        return Float(x.value * y.value, x.exponent + y.exponent)
    if NAN in (x.value, y.value) or ZERO in (x.value, y.value):
        return Float(NAN)
    signs = [str(each.value).startswith("-") for each in (x, y)]
    return Float("-inf" if signs[0] != signs[1] else "inf")


def block(terms: list[Float], type_: str) -> int:
    """Terms aligned with the greatest exponent, cut to 25 bits, and added."""
    if not all(each.is_finite for each in terms):
        return special(type_, sum_of_specials(terms))
    greatest = max((each.exponent for each in terms if each.value), default=0)
    unit = Fraction(2) ** (greatest - 25)
    total = sum(int(each.value / unit) for each in terms) * unit
    return encode(type_, total, is_truncated=type_ == "f32")


def rounded_sum(terms: list[Float]) -> Float:
    """A sum of exact terms as the nearest f32."""
    if not all(each.is_finite for each in terms):
        return Float(sum_of_specials(terms))
    return decode("f32", encode("f32", sum(each.value for each in terms), is_truncated=False))


def element(types: dict[str, str], shape: str, is_wmma: bool, xs, ys, c_bits: int) -> int:
    """The bits of an element of D, from a row of A, a column of B, and an element of C."""
    products = [
        product(decode(types["a"], x), decode(types["b"], y)) for x, y in zip(xs, ys, strict=True)
    ]
    c = decode(types["c"], c_bits)
    if shape == "m8n8k4":
        total = products[0]
        for each in products[1:]:
            total = rounded_sum([total, each])
        return _as(types["d"], rounded_sum([total, c]))
    held = "f16" if types["c"] == types["d"] == "f16" else "f32"
    if types["a"] in ("e4m3", "e5m2"):
        low = [each for k, each in enumerate(products) if k % 4 < 2]
        high = [each for k, each in enumerate(products) if k % 4 >= 2]
        first = decode(held, block(low, held))
        last = decode(held, block([first, *high], held))
        return _as(types["d"], rounded_sum([last, c]))
    if is_wmma and types["a"] == "tf32":
        c = decode(held, block([c, *products[:4]], held))
        products = products[4:]
    return _as(types["d"], decode(held, block([c, *products], held)))


def _as(type_: str, number: Float) -> int:
    if number.is_finite:
        return encode(type_, number.value, is_truncated=False)
    return special(type_, number.value)
