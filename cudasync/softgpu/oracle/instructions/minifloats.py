"""Cellar. cvt of tf32 and of pairs of small floats: PTX ISA, "cvt" and "Alternate Floating-Point".

A number is divided by the unit in its last place and rounded to an integer. The integer is the
number's distance from the beginning of its binade. All of it is in double, where the division is
exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cudasync.ptx.types import ScalarType
from cudasync.softgpu.oracle.instructions.half_precision import from_double

if TYPE_CHECKING:
    from cudasync.ptx.ir import Instruction
    from cudasync.softgpu.oracle.emission.emitter import Emitter

T = ScalarType


@dataclass(frozen=True, slots=True)
class Small:
    """Bits of exponent and fraction of a format, and the meaning of its top codes."""

    exponent: int
    fraction: int
    greatest: float
    has_infinity: bool
    has_nan: bool

    @property
    def bias(self) -> int:
        return (1 << (self.exponent - 1)) - 1

    @property
    def bits(self) -> int:
        """The bits of a number without its sign."""
        return self.exponent + self.fraction

    @property
    def stride(self) -> int:
        """The distance in bits between the numbers of a pair; 6-bit numbers have a byte each."""
        return 4 if self.bits == 3 else 8


SMALL = {
    T.E4M3X2: Small(4, 3, 448.0, False, True),
    T.E5M2X2: Small(5, 2, 57344.0, True, True),
    T.E2M3X2: Small(2, 3, 7.5, False, False),
    T.E3M2X2: Small(3, 2, 28.0, False, False),
    T.E2M1X2: Small(2, 1, 6.0, False, False),
}


def convert(e: Emitter, i: Instruction) -> None:
    """Lower cvt with one of these types."""
    target, source = i.types
    modifiers = set(i.modifiers)
    if target is T.TF32 and source is T.F32 and len(modifiers & {"rn", "rz", "rna"}) == 1:
        if modifiers - {"rn", "rz", "rna", "satfinite", "relu"}:
            e.refuse("this form of cvt is not implemented")
        _to_tf32(e, i)
    elif (
        target in SMALL
        and source is T.F32
        and len(i.operands) == 3
        and {"rn", "satfinite"} <= modifiers <= {"rn", "satfinite", "relu"}
    ):
        high, low = (_code(e, i, n, SMALL[target]) for n in (1, 2))
        shifted = e.value(f"shl i64 {high}, {SMALL[target].stride}")
        joined = e.value(f"or i64 {shifted}, {low}")
        e.write(i.operands[0], e.value(f"trunc i64 {joined} to i{target.bits}"), target)
    elif source in SMALL and target is T.F16X2 and modifiers <= {"rn", "relu"}:
        _from_pair(e, i, SMALL[source])
    else:
        e.refuse("this form of cvt is not implemented")


def _to_tf32(e: Emitter, i: Instruction) -> None:
    """Convert to tf32: 8 bits of exponent and 10 of fraction, at the top of 32 bits."""
    bits = e.to_bits(e.read(i.operands[1], T.F32), T.F32)
    sign = e.value(f"and i32 {bits}, -2147483648")
    size = e.value(f"and i32 {bits}, 2147483647")
    whole = e.value(f"lshr i32 {size}, 13")
    rest = e.value(f"and i32 {size}, 8191")
    if "rz" in i.modifiers:
        up = "false"
    else:
        up = e.value(f"icmp ugt i32 {rest}, 4096")
        is_tie = e.value(f"icmp eq i32 {rest}, 4096")
        is_odd = e.value(f"trunc i32 {whole} to i1")
        outward = is_tie if "rna" in i.modifiers else e.value(f"and i1 {is_tie}, {is_odd}")
        up = e.value(f"or i1 {up}, {outward}")
    whole = e.value(f"add i32 {whole}, {e.value(f'zext i1 {up} to i32')}")
    result = e.value(f"shl i32 {whole}, 13")
    if "satfinite" in i.modifiers:
        is_beyond = e.value(f"icmp uge i32 {result}, {0x7F800000}")
        result = e.select(is_beyond, "i32", str(0x7F7FE000), result)
    signed = e.value(f"or i32 {result}, {sign}")
    if "relu" in i.modifiers:
        signed = e.select(e.value(f"icmp ne i32 {sign}, 0"), "i32", "0", signed)
    is_nan = e.value(f"icmp ugt i32 {size}, {0x7F800000}")
    nan = str(0x7FFFE000)
    if "rna" in i.modifiers:
        # No instruction of the hardware, but integer arithmetic, through which a NaN passes.
        cut = e.value(f"and i32 {e.value(f'or i32 {bits}, {1 << 22}')}, {-1 << 13}")
        nan = e.value(f"sub i32 {cut}, {8192 if 'satfinite' in i.modifiers else 0}")
    e.write(i.operands[0], e.select(is_nan, "i32", nan, signed), T.B32)


def _code(e: Emitter, i: Instruction, index: int, small: Small) -> str:
    """The code of the number nearest to operand `index`, in an i64."""
    single = e.read(i.operands[index], T.F32)
    value = e.value(f"fpext float {single} to double")
    size = e.call("double", "llvm.fabs.f64", ("double", value))
    is_nan = e.value(f"fcmp uno double {value}, {value}")
    is_beyond = e.value(f"fcmp ogt double {size}, {small.greatest:.1f}")
    size = e.select(is_beyond, "double", f"{small.greatest:.1f}", size)
    size = e.select(is_nan, "double", "0.0", size)
    biased = e.value(f"lshr i64 {e.value(f'bitcast double {size} to i64')}, 52")
    least = 1023 + 1 - small.bias
    is_subnormal = e.value(f"icmp ult i64 {biased}, {least}")
    biased = e.select(is_subnormal, "i64", str(least), biased)
    scale = e.value(f"sub i64 {2046 + small.fraction}, {biased}")
    factor = e.value(f"bitcast i64 {e.value(f'shl i64 {scale}, 52')} to double")
    scaled = e.call("double", "llvm.rint.f64", ("double", e.value(f"fmul double {size}, {factor}")))
    count = e.value(f"fptoui double {scaled} to i64")
    binade = e.value(f"sub i64 {biased}, {least}")
    code = e.value(f"add i64 {e.value(f'shl i64 {binade}, {small.fraction}')}, {count}")
    is_negative = e.value(f"icmp slt i64 {e.value(f'bitcast double {value} to i64')}, 0")
    negative = "0"
    if "relu" not in i.modifiers:
        negative = e.value(f"or i64 {code}, {1 << small.bits}")
    code = e.select(is_negative, "i64", negative, code)
    return e.select(is_nan, "i64", str((1 << small.bits) - 1), code)


def _from_pair(e: Emitter, i: Instruction, small: Small) -> None:
    pair = e.value(f"zext i{i.types[1].bits} {e.read(i.operands[1], i.types[1])} to i32")
    low, high = (
        _number(e, e.value(f"lshr i32 {pair}, {shift}"), small, relu="relu" in i.modifiers)
        for shift in (0, small.stride)
    )
    low, high = (e.value(f"zext i16 {half} to i32") for half in (low, high))
    joined = e.value(f"or i32 {e.value(f'shl i32 {high}, 16')}, {low}")
    e.write(i.operands[0], joined, T.F16X2)


def _number(e: Emitter, code: str, small: Small, *, relu: bool) -> str:
    """The number of a code as f16 bits: (1 + fraction) * 2 ** (exponent - bias), or subnormal."""
    fraction = e.value(f"and i32 {code}, {(1 << small.fraction) - 1}")
    exponent = e.value(
        f"and i32 {e.value(f'lshr i32 {code}, {small.fraction}')}, {(1 << small.exponent) - 1}"
    )
    is_subnormal = e.value(f"icmp eq i32 {exponent}, 0")
    lifted = e.value(f"add i32 {fraction}, {1 << small.fraction}")
    digits = e.select(is_subnormal, "i32", fraction, lifted)
    exponent_or_one = e.select(is_subnormal, "i32", "1", exponent)
    shift = e.value(f"add i32 {exponent_or_one}, {1023 - small.bias - small.fraction}")
    scale = e.value(f"shl i64 {e.value(f'zext i32 {shift} to i64')}, 52")
    value = e.value(f"uitofp i32 {digits} to double")
    value = e.value(f"fmul double {value}, {e.value(f'bitcast i64 {scale} to double')}")
    half = from_double(e, value, T.F16, "rn")
    top = (1 << small.exponent) - 1
    if small.has_infinity:
        is_top = e.value(f"icmp eq i32 {exponent}, {top}")
        half = e.select(is_top, "i16", str(0x7C00), half)
    mark = e.value(f"and i32 {code}, {1 << small.bits}")
    is_negative = e.value(f"icmp ne i32 {mark}, 0")
    negative = "0" if relu else e.value(f"or i16 {half}, -32768")
    half = e.select(is_negative, "i16", negative, half)
    if small.has_nan:
        last = top << small.fraction if small.has_infinity else (1 << small.bits) - 2
        size = e.value(f"and i32 {code}, {(1 << small.bits) - 1}")
        half = e.select(e.value(f"icmp ugt i32 {size}, {last}"), "i16", str(0x7FFF), half)
    return half
