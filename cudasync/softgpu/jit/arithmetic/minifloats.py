"""Cellar, jit. cvt of tf32, and of pairs of 8, 6 and 4 bits: e4m3, e5m2, e2m3, e3m2, e2m1.

PTX ISA, "cvt" and "Alternate Floating-Point Data Formats". Numbers beyond a small format's greatest
become that number, because .satfinite is mandatory there. NaN becomes the format's NaN, or the
greatest number if the format has none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cudasync.ptx.types import ScalarType
from cudasync.softgpu.jit.arithmetic import half_precision
from cudasync.softgpu.jit.arithmetic.bfloat16 import rounded_bits
from cudasync.softgpu.jit.vector_ir.values import Value, integer, uniform

if TYPE_CHECKING:
    from cudasync.ptx import ir
    from cudasync.softgpu.jit.vector_ir.builder import Builder
    from cudasync.softgpu.jit.vector_ir.lowering_context import Lowering

T = ScalarType
_TF32_DROPPED = 13
_F32_BIAS = 127
_F16_BIAS = 15
_FRACTION_BITS = 23


@dataclass(frozen=True, slots=True)
class Format:
    """`bias` and `fraction` bits as usual; `most` and `nan` are codes without a sign.

    `room` is the number of bits for the code of one number in the pair.
    """

    fraction: int
    bias: int
    most: int
    greatest: float
    nan: int
    room: int
    sign: int


FORMATS = {
    T.E4M3X2: Format(3, 7, 0x7E, 448.0, 0x7F, 8, 0x80),
    T.E5M2X2: Format(2, 15, 0x7B, 57344.0, 0x7F, 8, 0x80),
    T.E2M3X2: Format(3, 1, 0x1F, 7.5, 0x1F, 8, 0x20),
    T.E3M2X2: Format(2, 3, 0x1F, 28.0, 0x1F, 8, 0x20),
    T.E2M1X2: Format(1, 1, 0x07, 6.0, 0x07, 4, 0x08),
}


def convert(lowering: Lowering, instruction: ir.Instruction) -> None:
    """cvt with one of these types."""
    target, source = instruction.types
    modifiers = set(instruction.modifiers)
    if target is T.TF32 and source is T.F32:
        _to_tf32(lowering, instruction)
    elif target in FORMATS and source is T.F32 and {"rn", "satfinite"} <= modifiers:
        if not modifiers <= {"rn", "satfinite", "relu"} or len(instruction.operands) != 3:
            lowering.refuse(instruction)
        _to_pair(lowering, instruction, FORMATS[target])
    elif source in FORMATS and target is T.F16X2 and modifiers <= {"rn", "relu"}:
        _from_pair(lowering, instruction, FORMATS[source])
    else:
        lowering.refuse(instruction)


def _to_tf32(lowering: Lowering, instruction: ir.Instruction) -> None:
    builder = lowering.builder
    mode = next((m for m in instruction.modifiers if m in ("rn", "rz", "rna")), None)
    if mode is None or not {mode, "satfinite", "relu"}.issuperset(instruction.modifiers):
        lowering.refuse(instruction)
    value = builder.flat(lowering.read(instruction.operands[1], T.F32))
    is_nan = builder.compare("fcmp uno", value, value)
    kept = integer("i32", -1 << _TF32_DROPPED)
    bits = builder.binary("and", rounded_bits(builder, value, _TF32_DROPPED, mode), kept)
    if "satfinite" in instruction.modifiers:
        size = builder.binary("and", bits, integer("i32", 0x7FFFFFFF))
        is_beyond = builder.compare("icmp uge", size, integer("i32", 0x7F800000))
        sign = builder.binary("and", bits, integer("i32", -0x80000000))
        most = builder.binary("or", sign, integer("i32", 0x7F7FE000))
        bits = builder.select(is_beyond, most, bits)
    if "relu" in instruction.modifiers:
        is_negative = builder.compare("icmp slt", bits, integer("i32", 0))
        bits = builder.select(is_negative, integer("i32", 0), bits)
    # Hardware has no instruction for .rna: there a NaN runs through the integer arithmetic of
    # these steps, of which .satfinite takes one unit from the largest exponent.
    nan = integer("i32", 0x7FFFE000)
    if mode == "rna":
        unit = 1 << _TF32_DROPPED if "satfinite" in instruction.modifiers else 0
        quiet = builder.binary("or", builder.bitcast(value, "i32"), integer("i32", 0x00400000))
        nan = builder.binary("sub", builder.binary("and", quiet, kept), integer("i32", unit))
    lowering.write(instruction.operands[0], builder.select(is_nan, nan, bits))


def _to_pair(lowering: Lowering, instruction: ir.Instruction, form: Format) -> None:
    builder = lowering.builder
    relu = "relu" in instruction.modifiers
    high, low = (
        _code(builder, builder.flat(lowering.read(each, T.F32)), form, relu=relu)
        for each in instruction.operands[1:]
    )
    joined = builder.binary("or", builder.binary("shl", high, integer("i32", form.room)), low)
    width = f"i{2 * form.room}"
    lowering.write(instruction.operands[0], builder.truncate(joined, width))


def _code(builder: Builder, value: Value, form: Format, *, relu: bool) -> Value:
    """An f32 as the code of the nearest number, in an i32.

    Adding a power of two with the same last bit as the format rounds the number to that bit. The
    increase of the sum's bits is then the number in units of that bit.
    """
    size = builder.intrinsic("fabs", "float", value)
    size = builder.intrinsic("minnum", "float", size, uniform("float", f"{form.greatest:.1f}"))
    exponent = builder.binary("lshr", builder.bitcast(size, "i32"), integer("i32", _FRACTION_BITS))
    least = integer("i32", _F32_BIAS + 1 - form.bias)
    exponent = builder.intrinsic("umax", "i32", exponent, least)
    shift = integer("i32", _FRACTION_BITS - form.fraction)
    unit = builder.binary("add", exponent, shift)
    unit = builder.binary("shl", unit, integer("i32", _FRACTION_BITS))
    total = builder.binary("fadd", size, builder.bitcast(unit, "float"))
    count = builder.binary("sub", builder.bitcast(total, "i32"), unit)
    steps = builder.binary("sub", exponent, least)
    base = builder.binary("shl", steps, integer("i32", form.fraction))
    code = builder.binary("add", base, count)
    is_negative = builder.compare("icmp slt", builder.bitcast(value, "i32"), integer("i32", 0))
    negative = builder.binary("or", code, integer("i32", form.sign))
    code = builder.select(is_negative, integer("i32", 0) if relu else negative, code)
    is_nan = builder.compare("fcmp uno", value, value)
    return builder.select(is_nan, integer("i32", form.nan), code)


def _from_pair(lowering: Lowering, instruction: ir.Instruction, form: Format) -> None:
    builder = lowering.builder
    source = lowering.read(instruction.operands[1], instruction.types[1])
    wide = builder.flat(builder.extend(builder.flat(source), "i32", is_signed=False))
    codes = (wide, builder.binary("lshr", wide, integer("i32", form.room)))
    relu = "relu" in instruction.modifiers
    low, high = (_number(builder, code, form, relu=relu) for code in codes)
    lowering.write(instruction.operands[0], half_precision.pack(builder, low, high))


def _number(builder: Builder, code: Value, form: Format, *, relu: bool) -> Value:
    """The number of a code as f16: its bits read as an f16, then scaled."""
    size = builder.binary("and", code, integer("i32", form.sign - 1))
    moved = builder.binary("shl", size, integer("i32", 10 - form.fraction))
    value = builder.bitcast(builder.truncate(moved, "i16"), "half")
    wide = builder.apply("fpext {T} {0} to {R}", "float", value)
    scale = uniform("float", f"{2.0 ** (_F16_BIAS - form.bias):.1f}")
    scaled = builder.binary("fmul", wide, scale)
    found = builder.bitcast(builder.apply("fptrunc {T} {0} to {R}", "half", scaled), "i16")
    sign = builder.binary("and", code, integer("i32", form.sign))
    is_negative = builder.compare("icmp ne", sign, integer("i32", 0))
    negative = integer("i16", 0) if relu else builder.binary("or", found, integer("i16", -0x8000))
    found = builder.select(is_negative, negative, found)
    if form.nan > form.most:
        is_nan = builder.compare("icmp ugt", size, integer("i32", _last_number(form)))
        found = builder.select(is_nan, integer("i16", 0x7FFF), found)
    return builder.bitcast(found, "half")


def _last_number(form: Format) -> int:
    """The greatest code that is not NaN: e5m2 has infinities."""
    return 0x7C if form.bias == _F16_BIAS else form.most
