"""Cellar. A tensor core's sum, as `matrix_arithmetic` defines it, in Python integers."""

from __future__ import annotations

import ctypes
import math
from typing import TYPE_CHECKING, NamedTuple

from cudasync.softgpu.semantics.matrix_arithmetic import KEPT_BITS, LEAST_EXPONENT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cudasync.softgpu.semantics.matrix_arithmetic import Arithmetic
    from cudasync.softgpu.semantics.matrix_forms import Form


class _Format(NamedTuple):
    fraction_bits: int
    greatest_exponent: int
    least_exponent: int
    is_to_nearest: bool


# Results of blocks are truncated to f32, and rounded to the nearest f16.
_FORMATS = {"f32": _Format(23, 127, -126, False), "f16": _Format(10, 15, -14, True)}


def aligned_sum(
    form: Form, sums: Arithmetic, pairs: Sequence[tuple[float, float]], c: float
) -> float:
    """The element of D: the blocks of a sum, and C."""
    carried, type_ = (None, "") if sums.is_c_last else (c, form.types["c"])
    for steps in sums.blocks:
        carried = _block(form, [pairs[k] for k in steps], carried, type_, sums.accumulator)
        type_ = sums.accumulator
    assert carried is not None
    return single(carried + c) if sums.is_c_last else carried


def single(value: float) -> float:
    """The nearest f32. It is right for the sum of two f32 that was rounded to f64 before."""
    return ctypes.c_float(value).value


def _block(
    form: Form,
    pairs: Sequence[tuple[float, float]],
    carried: float | None,
    carried_type: str,
    rounded_to: str,
) -> float:
    # No product of finite elements is too large or too long for a double.
    values = [x * y for x, y in pairs] + ([carried] if carried is not None else [])
    if not all(map(math.isfinite, values)):
        return sum(each for each in values if not math.isfinite(each))
    a, b = LEAST_EXPONENT[form.types["a"]], LEAST_EXPONENT[form.types["b"]]
    exponents = [_exponent(x, a) + _exponent(y, b) for x, y in pairs if x and y]
    if carried:
        exponents.append(_exponent(carried, LEAST_EXPONENT[carried_type]))
    last = max(exponents, default=0) - KEPT_BITS
    total = sum(math.trunc(math.ldexp(each, -last)) for each in values)
    return _rounded(total, last, _FORMATS[rounded_to])


def _exponent(value: float, least: int) -> int:
    return max(math.frexp(value)[1] - 1, least)


def _rounded(total: int, last: int, held: _Format) -> float:
    """total * 2^last in a format; zero is positive."""
    size = abs(total)
    exponent = size.bit_length() - 1 + last
    dropped = max(exponent, held.least_exponent) - held.fraction_bits - last
    if dropped > 0:
        size, rest = divmod(size, 1 << dropped)
        last += dropped
        half = 1 << (dropped - 1)
        if held.is_to_nearest and (rest > half or (rest == half and size & 1)):
            size += 1
    if size.bit_length() - 1 + last > held.greatest_exponent:
        return math.copysign(math.inf, total)
    return math.copysign(math.ldexp(size, last), total)
