"""Cellar. Matrix products of a warp, in Python numbers.

Sums in f32 and f16 are rounded as tensor cores round (`tensor_core_sums`). A sum in f64 begins with
C and adds products by rising k, each by a fused multiply-add, computed exactly and rounded once.
Integers are added exactly and brought into range at the end.
"""

from __future__ import annotations

import ctypes
import math
import struct
from fractions import Fraction
from typing import TYPE_CHECKING, TypeAlias

from cudasync.softgpu.oracle.interpreter.tensor_core_sums import aligned_sum, single
from cudasync.softgpu.semantics.matrix_arithmetic import arithmetic_of
from cudasync.softgpu.semantics.matrix_forms import ELEMENT_BITS, Form, form_of
from cudasync.softgpu.semantics.matrix_fragments import LANES, Fragment, Position, fragment

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cudasync.ptx.ir import Instruction

Words: TypeAlias = tuple[int, ...]
Matrix: TypeAlias = dict[Position, float]


def multiply(instruction: Instruction, lanes: dict[int, Words]) -> dict[int, Words]:
    """The registers of D in each lane, from those of A, B and C."""
    form = form_of(instruction)
    assert form is not None
    a, b, c = _matrices(form, lanes)
    d = {
        (product, row, column): _element(form, a, b, c, (product, row, column))
        for product in range(form.batches)
        for row in range(form.m)
        for column in range(form.n)
    }
    held = fragment(form, "d")
    words = [_encode_word(held, number, d) for number in range(held.registers * LANES)]
    return {
        lane: tuple(words[register * LANES + lane] for register in range(held.registers))
        for lane in lanes
    }


def _matrices(form: Form, lanes: dict[int, Words]) -> tuple[Matrix, Matrix, Matrix]:
    found, start = [], 0
    for operand in "abc":
        held = fragment(form, operand)
        matrix: Matrix = {}
        for element, position in enumerate(held.positions):
            word, part = divmod(element, held.parts)
            register, lane = divmod(word, LANES)
            # Lanes that have exited count as zero.
            bits = lanes[lane][start + register] if lane in lanes else 0
            matrix.setdefault(position, decode(held.type, bits, part))
        found.append(matrix)
        start += held.registers
    return found[0], found[1], found[2]


def _element(form: Form, a: Matrix, b: Matrix, c: Matrix, position: Position) -> float:
    product, row, column = position
    pairs = [(a[product, row, k], b[product, k, column]) for k in range(form.k)]
    total = c[position]
    match form.computes_in:
        case "s32" if form.combine:
            ones = [
                (int(x) & int(y) if form.combine == "and" else int(x) ^ int(y)) for x, y in pairs
            ]
            total += sum(each.bit_count() for each in ones)
        case "s32":
            total += sum(x * y for x, y in pairs)
        case "f64":
            for x, y in pairs:
                total = _fused_double(x, y, total, form.rounding)
            return total
        case _:
            return _single_sum(form, pairs, total)
    if form.is_saturating:
        return max(-(2**31), min(2**31 - 1, total))
    return total


def _single_sum(form: Form, pairs: Sequence[tuple[float, float]], c: float) -> float:
    sums = arithmetic_of(form)
    assert sums is not None
    if sums.blocks:
        return aligned_sum(form, sums, pairs, c)
    (x, y), *others = pairs
    total = x * y
    for x, y in others:
        total = _fused_single(x, y, total)
    return single(total + c)


def decode(type_: str, word: int, part: int) -> float:
    """Element `part` of a register."""
    bits = ELEMENT_BITS[type_]
    value = word >> (bits * part) & ((1 << bits) - 1)
    match type_:
        case "f64":
            return _unpack("<Qd", value)
        case "f32":
            return _unpack("<If", value)
        case "tf32":
            # The bits below the ten bits of fraction are ignored.
            return _unpack("<If", value & ~0x1FFF)
        case "bf16":
            return _unpack("<If", value << 16)
        case "f16":
            return _unpack("<He", value)
        case "e5m2":
            return _unpack("<He", value << 8)
        case "e4m3":
            return _e4m3(value)
        case "s8" | "s4" | "s32":
            return value - (1 << bits) if value >> (bits - 1) else value
    return value


def _unpack(formats: str, bits: int) -> float:
    (number,) = struct.unpack("<" + formats[2], struct.pack(formats[:2], bits))
    return float(number)


def _e4m3(bits: int) -> float:
    exponent, fraction = bits >> 3 & 15, bits & 7
    if bits & 127 == 127:
        size = math.nan
    elif exponent:
        size = math.ldexp(8 + fraction, exponent - 10)
    else:
        size = math.ldexp(fraction, -9)
    return -size if bits >> 7 else size


def _encode_word(held: Fragment, number: int, matrix: Matrix) -> int:
    """The word of register and lane `number`."""
    bits = ELEMENT_BITS[held.type]
    return sum(
        _encode(held.type, matrix[held.positions[number * held.parts + part]]) << (bits * part)
        for part in range(held.parts)
    )


def _encode(type_: str, value: float) -> int:
    if type_ == "s32":
        return int(value) % (1 << 32)
    if math.isnan(value):
        return {"f64": 0x7FFFFFFFFFFFFFFF, "f32": 0x7FFFFFFF}.get(type_, 0x7FFF)
    if type_ == "f64":
        return int.from_bytes(struct.pack("<d", value), "little")
    if type_ == "f32":
        return int.from_bytes(struct.pack("<f", value), "little")
    try:
        return int.from_bytes(struct.pack("<e", value), "little")
    except OverflowError:
        return 0xFC00 if value < 0 else 0x7C00


def _fused_single(x: float, y: float, z: float) -> float:
    """x * y + z as an f32, rounded once.

    The product of short floats is exact as a double. The sum is first rounded to odd. After that,
    the rounding to f32 is as if it were the only rounding (Boldo and Melquiond, "When double
    rounding is odd", 2005).
    """
    product = x * y
    total = product + z
    if math.isinf(total) or math.isnan(total):
        return total
    # The error of the sum, exactly (Knuth, TAOCP volume 2, 4.2.2, theorem B).
    back = total - product
    error = (product - (total - back)) + (z - back)
    if error and not int.from_bytes(struct.pack("<d", total), "little") & 1:
        total = math.nextafter(total, math.inf if error > 0 else -math.inf)
    return ctypes.c_float(total).value


def _fused_double(x: float, y: float, z: float, mode: str) -> float:
    """x * y + z as an f64, rounded once, by `mode`."""
    if not (math.isfinite(x) and math.isfinite(y)):
        return x * y + z
    if not math.isfinite(z):
        # The product is finite, even if it is not a double.
        return z
    exact = Fraction(x) * Fraction(y) + Fraction(z)
    if exact == 0:
        signs = [math.copysign(1, x) * math.copysign(1, y), math.copysign(1, z)]
        is_negative = signs == [-1, -1] or (mode == "rm" and -1 in signs)
        return -0.0 if is_negative else 0.0
    try:
        nearest = exact.numerator / exact.denominator
    except OverflowError:
        nearest = math.inf if exact > 0 else -math.inf
    if mode == "rn" or nearest == exact:
        return nearest
    is_above = nearest > exact
    wants_above = mode == "rp" or (mode == "rz" and exact < 0)
    if is_above is wants_above:
        return nearest
    return math.nextafter(nearest, math.inf if wants_above else -math.inf)
