"""Cellar, jit. ex2 lg2 sin cos tanh, the approximate functions, as polynomials on vectors.

The polynomials are least-squares fits on Chebyshev points. Their errors, without the rounding of
f32, are: 2**x 2e-9 relative, log2 4e-8 relative to its distance from the next power of two, sin and
cos 4e-9. All are below the limits that hardware promises (2**-22 relative, 2**-20.9 absolute).

Three habits of hardware are kept, since programs meet them: sin and cos count turns in fixed point,
so a tiny angle is none and a huge one is whole turns; halves are cut off, not rounded.
"""

from __future__ import annotations

import math
import struct
from typing import TYPE_CHECKING

from cudasync.ptx.types import ScalarType
from cudasync.softgpu.jit.arithmetic import half_precision
from cudasync.softgpu.jit.arithmetic.floating_point import finish, one, sources
from cudasync.softgpu.jit.vector_ir.values import Value, integer, uniform, zero

if TYPE_CHECKING:
    from collections.abc import Callable

    from cudasync.ptx import ir
    from cudasync.softgpu.jit.vector_ir.builder import Builder
    from cudasync.softgpu.jit.vector_ir.lowering_context import Emitter, Lowering

# 2**x for x in [-1/2, 1/2].
_EXP2 = (
    0.00015469732153025826,
    0.0013400432165462384,
    0.009618025602404334,
    0.05550327214208948,
    0.24022651213598684,
    0.6931472067106199,
    1.0,
)
# log2(1 + x) / x for 1 + x in [sqrt(1/2), sqrt(2)].
_LOG2 = (
    0.12614846611723587,
    -0.20742103506248777,
    0.21566985900546992,
    -0.23892033981744668,
    0.28791832447112503,
    -0.3607048280967062,
    0.48091060994526114,
    -0.7213473333598966,
    1.4426950037647264,
)
# sin(x) / x and cos(x) of x squared, for x in [-pi/4, pi/4].
_SIN = (-0.00019497271148502892, 0.008331984215123822, -0.16666649712507542, 1.0)
_COS = (
    2.437151254357375e-05,
    -0.0013886527372882762,
    0.041666613670827406,
    -0.49999999583524973,
    1.0,
)
_TURN = 0.15915494309189535
# A turn has this many bits in fixed point; a quarter of it has two fewer.
_TURN_BITS = 25
_QUARTER_BITS = _TURN_BITS - 2
_LOG2_E = 1.4426950408889634
_SQRT_HALF_BITS = 0x3F3504F3


def _constant(value: float) -> Value:
    """The f32 constant nearest to `value`."""
    (single,) = struct.unpack("<f", struct.pack("<f", value))
    (bits,) = struct.unpack("<Q", struct.pack("<d", single))
    return uniform("float", f"0x{bits:016X}")


def _polynomial(builder: Builder, x: Value, coefficients: tuple[float, ...]) -> Value:
    """Evaluate by Horner's rule; coefficients from the highest power down."""
    result = _constant(coefficients[0])
    for coefficient in coefficients[1:]:
        result = builder.intrinsic("fma", "float", result, x, _constant(coefficient))
    return result


def _power_of_two(builder: Builder, exponent: Value) -> Value:
    """2**exponent for exponents of normal numbers."""
    biased = builder.binary("add", exponent, integer("i32", 127))
    return builder.bitcast(builder.binary("shl", biased, integer("i32", 23)), "float")


def _exp2(builder: Builder, x: Value) -> Value:
    """2**x, in two factors so that subnormal results are correct."""
    least, most = _constant(-160.0), _constant(130.0)
    low = builder.select(builder.compare("fcmp ogt", x, least), x, least)
    clamped = builder.select(builder.compare("fcmp olt", low, most), low, most)
    whole = builder.intrinsic("rint", "float", clamped)
    rest = builder.binary("fsub", clamped, whole)
    exponent = builder.apply("fptosi {T} {0} to {R}", "i32", whole)
    first = builder.binary("ashr", exponent, integer("i32", 1))
    second = builder.binary("sub", exponent, first)
    scaled = builder.binary(
        "fmul", _polynomial(builder, rest, _EXP2), _power_of_two(builder, first)
    )
    result = builder.binary("fmul", scaled, _power_of_two(builder, second))
    return builder.select(builder.compare("fcmp uno", x, x), x, result)


def _log2(builder: Builder, x: Value) -> Value:
    """The logarithm to base 2."""
    least = _constant(2.0**-126)
    is_small = builder.compare("fcmp olt", x, least)
    scaled = builder.binary("fmul", x, _constant(2.0**24))
    normal = builder.select(is_small, scaled, x)
    shift = builder.select(is_small, _constant(-24.0), zero("float"))
    bits = builder.bitcast(normal, "i32")
    exponent = builder.binary(
        "ashr", builder.binary("sub", bits, integer("i32", _SQRT_HALF_BITS)), integer("i32", 23)
    )
    mantissa = builder.binary("sub", bits, builder.binary("shl", exponent, integer("i32", 23)))
    near_one = builder.binary("fsub", builder.bitcast(mantissa, "float"), one("float"))
    whole = builder.apply("sitofp {T} {0} to {R}", "float", exponent)
    whole = builder.binary("fadd", whole, shift)
    slope = _polynomial(builder, near_one, _LOG2)
    result = builder.intrinsic("fma", "float", near_one, slope, whole)
    is_zero = builder.compare("fcmp oeq", x, zero("float"))
    is_infinite = builder.compare("fcmp oeq", x, uniform("float", "0x7FF0000000000000"))
    is_wrong = builder.compare("fcmp ult", x, zero("float"))
    result = builder.select(is_infinite, x, result)
    result = builder.select(is_wrong, uniform("float", "0x7FF8000000000000"), result)
    return builder.select(is_zero, uniform("float", "0xFFF0000000000000"), result)


def _turns(builder: Builder, size: Value) -> Value:
    """A positive angle in turns: its product with the f32 nearest to 1/(2 pi), cut off."""
    product = builder.binary("fmul", size, _constant(_TURN))
    negative = builder.apply("fneg {T} {0}", "float", product)
    error = builder.intrinsic("fma", "float", size, _constant(_TURN), negative)
    is_above = builder.compare("fcmp olt", error, zero("float"))
    bits = builder.bitcast(product, "i32")
    below = builder.binary("sub", bits, integer("i32", 1))
    return builder.bitcast(builder.select(is_above, below, bits), "float")


def _circular(builder: Builder, x: Value, quarter_turns: int) -> Value:
    """sin(|x| + quarter_turns * pi / 2)."""
    turns = _turns(builder, builder.intrinsic("fabs", "float", x))
    part = builder.binary("fsub", turns, builder.intrinsic("floor", "float", turns))
    scaled = builder.binary("fmul", part, _constant(2.0**_TURN_BITS))
    fixed = builder.apply("fptosi {T} {0} to {R}", "i32", scaled)
    half = integer("i32", 1 << (_QUARTER_BITS - 1))
    quadrant = builder.binary(
        "lshr", builder.binary("add", fixed, half), integer("i32", _QUARTER_BITS)
    )
    whole = builder.binary("shl", quadrant, integer("i32", _QUARTER_BITS))
    rest = builder.apply("sitofp {T} {0} to {R}", "float", builder.binary("sub", fixed, whole))
    rest = builder.binary("fmul", rest, _constant(2 * math.pi / 2**_TURN_BITS))
    if quarter_turns:
        quadrant = builder.binary("add", quadrant, integer("i32", quarter_turns))
    square = builder.binary("fmul", rest, rest)
    sine = builder.binary("fmul", rest, _polynomial(builder, square, _SIN))
    cosine = _polynomial(builder, square, _COS)
    odd = builder.binary("and", quadrant, integer("i32", 1))
    is_cosine = builder.compare("icmp ne", odd, integer("i32", 0))
    size = builder.select(is_cosine, cosine, sine)
    half = builder.binary("and", quadrant, integer("i32", 2))
    sign = builder.binary("shl", half, integer("i32", 30))
    turned = builder.binary("xor", builder.bitcast(size, "i32"), sign)
    # Of a NaN the integers are poison in LLVM's sense, which this choice leaves behind.
    is_finite = builder.compare("fcmp ord", part, part)
    return builder.select(is_finite, builder.bitcast(turned, "float"), part)


def _sine(builder: Builder, x: Value) -> Value:
    sign = builder.binary("and", builder.bitcast(x, "i32"), integer("i32", -0x80000000))
    of_size = builder.bitcast(_circular(builder, x, 0), "i32")
    return builder.bitcast(builder.binary("xor", of_size, sign), "float")


def _cosine(builder: Builder, x: Value) -> Value:
    return _circular(builder, x, 1)


def _tanh(builder: Builder, x: Value) -> Value:
    """(1 - t) / (1 + t) with t = exp(-2|x|); near zero, where that cancels, x - x**3 / 3."""
    size = builder.intrinsic("fabs", "float", x)
    t = _exp2(builder, builder.binary("fmul", size, _constant(-2 * _LOG2_E)))
    ratio = builder.binary(
        "fdiv", builder.binary("fsub", one("float"), t), builder.binary("fadd", one("float"), t)
    )
    cube = builder.binary("fmul", builder.binary("fmul", size, size), size)
    near = builder.intrinsic("fma", "float", cube, _constant(-1 / 3), size)
    is_near = builder.compare("fcmp olt", size, _constant(0.03))
    return builder.intrinsic("copysign", "float", builder.select(is_near, near, ratio), x)


def _masked(builder: Builder, value: Value, dropped: int, more: int = 0) -> Value:
    """An f32 plus `more` units of its last bit, without its last `dropped` bits."""
    bits = builder.bitcast(value, "i32")
    if more:
        bits = builder.binary("add", bits, integer("i32", more))
    kept = builder.binary("and", bits, integer("i32", -1 << dropped))
    return builder.bitcast(kept, "float")


def _cut(builder: Builder, value: Value) -> Value:
    """A result in f32 as f16, cut off; beyond f16 it is infinite."""
    half = half_precision.narrow_directed(builder, value, "rz")
    is_beyond = builder.compare("fcmp oge", value, _constant(2.0**16))
    return builder.select(is_beyond, uniform("half", "0xH7C00"), half)


def _function(compute: Callable[[Builder, Value], Value]) -> Emitter:
    def emit(lowering: Lowering, instruction: ir.Instruction) -> None:
        type_ = instruction.type
        if type_ not in (ScalarType.F16, ScalarType.BF16, ScalarType.F32):
            lowering.refuse(instruction)
        builder = lowering.builder
        (value,) = sources(lowering, instruction)
        if type_ is ScalarType.F16:
            value = builder.apply("fpext {T} {0} to {R}", "float", value)
        result = compute(builder, value)
        if type_ is not ScalarType.F32 and compute is _tanh:
            # Hardware has some 18 bits before it cuts.
            result = _masked(builder, result, 6, 1 << 5)
        if type_ is ScalarType.F16:
            result = _cut(builder, result)
        elif type_ is ScalarType.BF16:
            result = _masked(builder, result, 16)
        finish(lowering, instruction, result)

    return emit


EMITTERS: dict[str, Emitter] = {
    "ex2": _function(_exp2),
    "lg2": _function(_log2),
    "sin": _function(_sine),
    "cos": _function(_cosine),
    "tanh": _function(_tanh),
}
