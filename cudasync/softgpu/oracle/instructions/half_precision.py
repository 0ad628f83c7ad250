"""Cellar. The 16-bit floats, in integer arithmetic: they need no processor feature.

f16 has 10 bits of fraction and exponents from -14; bf16 has 7 bits and exponents from -126. Each of
their values is a double. The way back divides by the unit in the last place, which is exact, and
rounds the quotient to an integer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.ptx.types import ScalarType

if TYPE_CHECKING:
    from cudasync.softgpu.oracle.emission.emitter import Emitter

T = ScalarType
_SHAPE = {T.F16: (10, -14), T.BF16: (7, -126)}
_INTEGRAL = {"rn": "rint", "rz": "trunc", "rm": "floor", "rp": "ceil"}


def to_double(e: Emitter, value: str, type_: ScalarType) -> str:
    """A half, given as i16, as a double."""
    fraction_bits, least = _SHAPE[type_]
    exponent_mask = (1 << (15 - fraction_bits)) - 1
    wide = e.value(f"zext i16 {value} to i64")
    fraction = e.value(f"and i64 {wide}, {(1 << fraction_bits) - 1}")
    exponent = e.value(f"and i64 {e.value(f'lshr i64 {wide}, {fraction_bits}')}, {exponent_mask}")
    sign = e.value(f"shl i64 {e.value(f'lshr i64 {wide}, 15')}, 63")
    is_small = e.value(f"icmp eq i64 {exponent}, 0")
    # Subnormal: fraction times 2 ** (least - fraction_bits), which is a normal double.
    unit = 1023 + least - fraction_bits << 52
    tiny = e.value(f"uitofp i64 {fraction} to double")
    tiny = e.value(f"fmul double {tiny}, {e.value(f'bitcast i64 {unit} to double')}")
    moved = e.value(f"shl i64 {fraction}, {52 - fraction_bits}")
    biased = e.value(f"add i64 {exponent}, {1023 + least - 1}")
    is_special = e.value(f"icmp eq i64 {exponent}, {exponent_mask}")
    biased = e.select(is_special, "i64", "2047", biased)
    normal = e.value(f"or i64 {moved}, {e.value(f'shl i64 {biased}, 52')}")
    size = e.select(is_small, "i64", e.value(f"bitcast double {tiny} to i64"), normal)
    return e.value(f"bitcast i64 {e.value(f'or i64 {size}, {sign}')} to double")


def from_double(e: Emitter, value: str, type_: ScalarType, mode: str) -> str:
    """A double rounded to a half, as i16; a NaN becomes 0x7FFF."""
    fraction_bits, least = _SHAPE[type_]
    infinity = (0x7FFF >> fraction_bits) << fraction_bits
    bits = e.value(f"bitcast double {value} to i64")
    sign = e.value(f"lshr i64 {bits}, 63")
    biased = e.value(f"and i64 {e.value(f'lshr i64 {bits}, 52')}, 2047")
    exponent = e.value(f"sub i64 {biased}, 1023")
    is_small = e.value(f"icmp slt i64 {exponent}, {least}")
    exponent = e.select(is_small, "i64", str(least), exponent)
    # Multiply by 2 ** (fraction_bits - exponent): exact, because only the exponent changes.
    scale = e.value(f"shl i64 {e.value(f'sub i64 {1023 + fraction_bits}, {exponent}')}, 52")
    quotient = e.value(f"fmul double {value}, {e.value(f'bitcast i64 {scale} to double')}")
    whole = e.call("double", f"llvm.{_INTEGRAL[mode]}.f64", ("double", quotient))
    whole = e.call("double", "llvm.fabs.f64", ("double", whole))
    is_nan = e.value(f"fcmp uno double {value}, {value}")
    magnitude = e.call("double", "llvm.fabs.f64", ("double", value))
    infinite = e.value("bitcast i64 9218868437227405312 to double")
    is_infinite = e.value(f"fcmp oeq double {magnitude}, {infinite}")
    # Beyond 2 ** 16 (2 ** 128) everything overflows. This also keeps the conversion in range.
    is_large = e.value(f"icmp sgt i64 {exponent}, {1 - least}")
    unsafe = e.value(f"or i1 {is_nan}, {is_large}")
    count = e.value(f"fptoui double {e.select(unsafe, 'double', '0.0', whole)} to i64")
    # Each step of the exponent is 2 ** fraction_bits steps of the half. So rounding up to the next
    # power of two carries into the exponent by itself.
    base = e.value(f"shl i64 {e.value(f'sub i64 {exponent}, {least}')}, {fraction_bits}")
    half = e.value(f"add i64 {base}, {count}")
    beyond = e.value(f"icmp uge i64 {half}, {infinity}")
    beyond = e.value(f"or i1 {beyond}, {is_large}")
    half = e.select(beyond, "i64", _overflow(e, sign, mode, infinity), half)
    half = e.select(is_infinite, "i64", str(infinity), half)
    half = e.value(f"or i64 {half}, {e.value(f'shl i64 {sign}, 15')}")
    half = e.select(is_nan, "i64", "32767", half)
    return e.value(f"trunc i64 {half} to i16")


def _overflow(e: Emitter, sign: str, mode: str, infinity: int) -> str:
    """Infinity, or the largest number if the mode rounds towards it."""
    if mode == "rn":
        return str(infinity)
    if mode == "rz":
        return str(infinity - 1)
    is_negative = e.value(f"trunc i64 {sign} to i1")
    down, up = str(infinity), str(infinity - 1)
    if mode == "rp":
        down, up = up, down
    return e.select(is_negative, "i64", down, up)


def least_or_most(
    e: Emitter, opcode: str, a: str, b: str, type_: ScalarType, *, nan_wins: bool = False
) -> str:
    """min or max of halves, ordered as integers: a set sign reverses the order of the rest."""
    keys, nans = [], []
    fraction_bits, _ = _SHAPE[type_]
    infinity = (0x7FFF >> fraction_bits) << fraction_bits
    for value in (a, b):
        size = e.value(f"and i16 {value}, 32767")
        nans.append(e.value(f"icmp ugt i16 {size}, {infinity}"))
        is_negative = e.value(f"icmp slt i16 {value}, 0")
        keys.append(e.select(is_negative, "i16", e.value(f"xor i16 {size}, -1"), size))
    relation = "slt" if opcode == "min" else "sgt"
    chosen = e.select(e.value(f"icmp {relation} i16 {keys[0]}, {keys[1]}"), "i16", a, b)
    if nan_wins:
        return e.select(e.value(f"or i1 {nans[0]}, {nans[1]}"), "i16", "32767", chosen)
    chosen = e.select(nans[0], "i16", b, e.select(nans[1], "i16", a, chosen))
    return e.select(e.value(f"and i1 {nans[0]}, {nans[1]}"), "i16", "32767", chosen)
