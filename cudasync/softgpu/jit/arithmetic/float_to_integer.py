"""Cellar, jit. Converts a float to an integer: truncated, and clamped to the integer's range.

LLVM has an intrinsic for that, but expands it lane by lane, seven instructions for each. A compare,
a select and a conversion that is sure to fit are vectors throughout. For a scalar the intrinsic is
best.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from cudasync.softgpu.jit.vector_ir.values import Value, bits_of, integer, uniform, zero

if TYPE_CHECKING:
    from cudasync.softgpu.jit.vector_ir.builder import Builder

# The precision of each float type: integers of this many bits are exact.
_EXACT_BITS = {"float": 24, "double": 53}


def to_integer(
    builder: Builder, value: Value, type_: str, *, is_signed: bool = True, nan: int = 0
) -> Value:
    """The integer of a float or double, clamped to the largest or smallest integer."""
    sign = "s" if is_signed else "u"
    if value.is_uniform:
        result = builder.intrinsic(f"fpto{sign}i.sat", type_, value)
        return _with_nan(builder, value, result, nan) if nan else result
    size_bits = bits_of(type_) - is_signed
    # The largest float that fits, and whether it is the largest integer.
    top = (1 << size_bits) - (1 << max(0, size_bits - _EXACT_BITS[value.type]))
    is_exact = top == (1 << size_bits) - 1
    least = _number(value.type, -(1 << size_bits) if is_signed else 0)
    # A NaN is not greater than the least either, so it becomes the least.
    held = builder.select(builder.compare("fcmp ogt", value, least), value, least)
    most = _number(value.type, top)
    held = builder.select(builder.compare("fcmp olt", held, most), held, most)
    # A processor has no conversions to less than 32 bits.
    wide = type_ if bits_of(type_) >= 32 else "i32"
    how = "fptosi" if is_signed or wide != type_ else "fptoui"
    result = builder.truncate(builder.apply(how + " {T} {0} to {R}", wide, held), type_)
    if not is_exact:
        is_beyond = builder.compare("fcmp oge", value, _number(value.type, 1 << size_bits))
        result = builder.select(is_beyond, integer(type_, (1 << size_bits) - 1), result)
    return _with_nan(builder, value, result, nan) if nan or is_signed else result


def _with_nan(builder: Builder, value: Value, result: Value, nan: int) -> Value:
    is_nan = builder.compare("fcmp uno", value, value)
    return builder.select(is_nan, integer(result.type, nan), result)


def _number(type_: str, number: int) -> Value:
    """A whole number, which the float type represents exactly."""
    if number == 0:
        return zero(type_)
    return uniform(type_, f"0x{struct.pack('>d', float(number)).hex().upper()}")
