"""Cellar, jit. Floating-point arithmetic: add sub mul fma div, min max abs neg, sqrt rcp rsqrt.

Rounding is to nearest even, like the host's arithmetic; for the other modes see `rounding_modes`.
`.approx` forms are computed with full precision, except those in `transcendental`, quotients by
huge divisors, and the gross reciprocals of f64. Nothing is contracted implicitly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from cudasync.ptx.types import ScalarType
from cudasync.softgpu.jit.arithmetic import bfloat16, half_precision
from cudasync.softgpu.jit.arithmetic.rounding_modes import DIRECTED, rounded
from cudasync.softgpu.jit.vector_ir.values import Value, bits_of, integer, zero

if TYPE_CHECKING:
    from collections.abc import Callable

    from cudasync.ptx import ir
    from cudasync.softgpu.jit.vector_ir.builder import Builder
    from cudasync.softgpu.jit.vector_ir.lowering_context import Emitter, Lowering

_LEAST_NORMALS = {"float": "0x3810000000000000", "half": "0xH0400", "double": "0x0010000000000000"}
# div.approx gives zero for greater divisors, whose reciprocals are subnormal: 2**126.
_MOST_DIVISOR = "0x47D0000000000000"
_UPPER_WORD = -1 << 32
_TYPES = (ScalarType.F16, ScalarType.BF16, ScalarType.F32, ScalarType.F64)


def one(type_: str) -> Value:
    """1.0"""
    return Value(type_, "1.0" if type_ != "half" else "0xH3C00", zero(type_).shape)


def sources(lowering: Lowering, instruction: ir.Instruction) -> list[Value]:
    """The operands after the first, in the instruction's type; flushed with .ftz."""
    values = (read(lowering, each, instruction.type) for each in instruction.operands[1:])
    return [flush(lowering, instruction, value) for value in values]


def read(lowering: Lowering, operand: ir.Operand, type_: ScalarType) -> Value:
    """A float in its LLVM type; a bf16 becomes an f32."""
    value = lowering.builder.flat(lowering.read(operand, type_))
    return bfloat16.widen(lowering.builder, value) if type_ is ScalarType.BF16 else value


def flush(lowering: Lowering, instruction: ir.Instruction, value: Value) -> Value:
    """With .ftz, replace a subnormal f32 or f16 by the zero of its sign."""
    if "ftz" not in instruction.modifiers or value.type not in ("float", "half"):
        return value
    return _without_subnormals(lowering.builder, value)


def _without_subnormals(builder: Builder, value: Value) -> Value:
    least = _LEAST_NORMALS[value.type]
    size = builder.intrinsic("fabs", value.type, value)
    is_small = builder.compare("fcmp olt", size, Value(value.type, least, zero("float").shape))
    nothing = builder.intrinsic("copysign", value.type, zero(value.type), value)
    return builder.select(is_small, nothing, value)


def saturate(builder: Builder, value: Value) -> Value:
    """Clamp to [0, 1]; NaN becomes 0."""
    low = builder.select(
        builder.compare("fcmp ogt", value, zero(value.type)), value, zero(value.type)
    )
    return builder.select(builder.compare("fcmp olt", low, one(value.type)), low, one(value.type))


def clamp_below(builder: Builder, value: Value) -> Value:
    """.relu: negative numbers become 0, and NaN the canonical NaN."""
    is_negative = builder.compare("fcmp ole", value, zero(value.type))
    value = builder.select(is_negative, zero(value.type), value)
    is_nan = builder.compare("fcmp uno", value, value)
    bits = bits_of(value.type)
    nan = integer(f"i{bits}", (1 << (bits - 1)) - 1)
    if not value.is_uniform:
        nan = builder.varying(nan)
    return builder.select(is_nan, builder.bitcast(nan, value.type), value)


def finish(lowering: Lowering, instruction: ir.Instruction, value: Value) -> None:
    """Flush, saturate and clamp the result by the instruction's modifiers, and write it."""
    value = flush(lowering, instruction, value)
    if "sat" in instruction.modifiers:
        value = saturate(lowering.builder, value)
    elif "relu" in instruction.modifiers:
        value = clamp_below(lowering.builder, value)
    elif value.type == "half":
        value = half_precision.canonical(lowering.builder, value)
    if instruction.type is ScalarType.BF16:
        value = bfloat16.narrow(lowering.builder, value)
    lowering.write(instruction.operands[0], value)


# An operation on operands of one type; the mode is "rn" or one of `rounding_modes.DIRECTED`.
Operation: TypeAlias = "Callable[[Lowering, list[Value], str], Value]"


def _arithmetic(operation: Operation) -> Emitter:
    def emit(lowering: Lowering, instruction: ir.Instruction) -> None:
        type_ = instruction.type
        if type_ not in _TYPES or len(instruction.types) > 1:
            lowering.refuse(instruction)
        mode = next((each for each in instruction.modifiers if each in DIRECTED), "rn")
        is_half = type_ in (ScalarType.F16, ScalarType.BF16)
        if (is_half and mode != "rn") or (not is_half and "relu" in instruction.modifiers):
            lowering.refuse(instruction)
        if type_ is ScalarType.BF16 and "sat" in instruction.modifiers:
            lowering.refuse(instruction)
        values = sources(lowering, instruction)
        if type_ is ScalarType.BF16 and len(values) == 3:
            finish(lowering, instruction, bfloat16.fused(lowering.builder, *values))
            return
        finish(lowering, instruction, operation(lowering, values, mode))

    return emit


def _binary(name: str) -> Operation:
    def compute(lowering: Lowering, values: list[Value], mode: str) -> Value:
        if mode == "rn":
            return lowering.builder.binary(name, *values)
        return rounded(lowering, name, mode, values[0].type, *values)

    return compute


def _unary(intrinsic: str) -> Operation:
    def compute(lowering: Lowering, values: list[Value], mode: str) -> Value:
        if mode == "rn":
            return lowering.builder.intrinsic(intrinsic, values[0].type, *values)
        return rounded(lowering, intrinsic, mode, values[0].type, *values)

    return compute


def _fma(lowering: Lowering, values: list[Value], mode: str) -> Value:
    if mode != "rn":
        return rounded(lowering, "fma", mode, values[0].type, *values)
    if values[0].type == "half":
        return half_precision.fused(lowering.builder, *values)
    return lowering.builder.intrinsic("fma", values[0].type, *values)


def _reciprocal(lowering: Lowering, values: list[Value], mode: str) -> Value:
    return _binary("fdiv")(lowering, [one(values[0].type), *values], mode)


def _reciprocal_root(lowering: Lowering, values: list[Value], mode: str) -> Value:
    return _reciprocal(lowering, [_unary("sqrt")(lowering, values, mode)], mode)


def _gross(operation: Operation, exact: Emitter) -> Emitter:
    """rcp and rsqrt: .approx.ftz.f64 has no subnormal numbers, and its lower word is zero."""

    def emit(lowering: Lowering, instruction: ir.Instruction) -> None:
        if instruction.type is not ScalarType.F64 or "ftz" not in instruction.modifiers:
            exact(lowering, instruction)
            return
        builder = lowering.builder
        values = [_without_subnormals(builder, each) for each in sources(lowering, instruction)]
        value = _without_subnormals(builder, operation(lowering, values, "rn"))
        is_nan = builder.compare("fcmp uno", value, value)
        bits = builder.binary("add", builder.bitcast(value, "i64"), integer("i64", 1 << 31))
        upper = builder.binary("and", bits, integer("i64", _UPPER_WORD))
        result = builder.select(is_nan, integer("i64", 0x7FFFFFFF << 32), upper)
        lowering.write(instruction.operands[0], builder.bitcast(result, "double"))

    return emit


def divide(lowering: Lowering, instruction: ir.Instruction) -> None:
    if "approx" not in instruction.modifiers:
        _exact_division(lowering, instruction)
        return

    def approximate(_lowering: Lowering, values: list[Value], _mode: str) -> Value:
        builder = lowering.builder
        number, divisor = values
        size = builder.intrinsic("fabs", divisor.type, divisor)
        most = Value(divisor.type, _MOST_DIVISOR, zero(divisor.type).shape)
        nothing = builder.intrinsic("copysign", divisor.type, zero(divisor.type), divisor)
        return builder.select(
            builder.compare("fcmp ogt", size, most),
            builder.binary("fmul", number, nothing),
            builder.binary("fdiv", number, divisor),
        )

    _arithmetic(approximate)(lowering, instruction)


def _negative(lowering: Lowering, values: list[Value], _mode: str) -> Value:
    return lowering.builder.apply("fneg {T} {0}", values[0].type, *values)


add = _arithmetic(_binary("fadd"))
subtract = _arithmetic(_binary("fsub"))
multiply = _arithmetic(_binary("fmul"))
_exact_division = _arithmetic(_binary("fdiv"))
fused = _arithmetic(_fma)
absolute = _arithmetic(_unary("fabs"))
negate = _arithmetic(_negative)
square_root = _arithmetic(_unary("sqrt"))
reciprocal = _gross(_reciprocal, _arithmetic(_reciprocal))
reciprocal_root = _gross(_reciprocal_root, _arithmetic(_reciprocal_root))


def least_or_most(lowering: Lowering, instruction: ir.Instruction) -> None:
    """min and max: a NaN loses against a number, except with .NaN; -0 is less than +0."""
    operation = ("minimum" if instruction.opcode == "min" else "maximum") + (
        "" if "NaN" in instruction.modifiers else "num"
    )

    def pick(_lowering: Lowering, values: list[Value], _mode: str) -> Value:
        builder, type_ = lowering.builder, values[0].type
        if type_ == "half":
            # For halves LLVM computes min and max lane by lane, in twenty instructions for each.
            values = [builder.apply("fpext {T} {0} to {R}", "float", each) for each in values]
        found = values[0]
        for value in values[1:]:
            found = builder.intrinsic(operation, found.type, found, value)
        return (
            found if found.type == type_ else builder.apply("fptrunc {T} {0} to {R}", type_, found)
        )

    if "xorsign" in instruction.modifiers:
        lowering.refuse(instruction)
    _arithmetic(pick)(lowering, instruction)


def _copy_sign(lowering: Lowering, instruction: ir.Instruction) -> None:
    """copysign d, a, b: the sign of a, the rest of b."""
    sign, size = sources(lowering, instruction)
    result = lowering.builder.intrinsic("copysign", size.type, size, sign)
    lowering.write(instruction.operands[0], result)


def _test(lowering: Lowering, instruction: ir.Instruction) -> None:
    """testp: test a property of one number."""
    (value,) = sources(lowering, instruction)
    builder = lowering.builder
    size = builder.intrinsic("fabs", value.type, value)
    least = _LEAST_NORMALS[value.type]
    shape = zero(value.type).shape
    infinity = Value(value.type, "0x7FF0000000000000", shape)
    smallest = Value(value.type, least, shape)
    is_nan = builder.compare("fcmp uno", value, value)
    is_infinite = builder.compare("fcmp oeq", size, infinity)
    is_finite = builder.compare("fcmp olt", size, infinity)
    is_small = builder.compare("fcmp olt", size, smallest)
    is_some = builder.compare("fcmp ogt", size, zero(value.type))
    is_subnormal = builder.binary("and", is_small, is_some)
    answers = {
        "notanumber": is_nan,
        "number": lowering.negate(is_nan),
        "infinite": is_infinite,
        "finite": is_finite,
        # Zero counts as normal.
        "normal": builder.binary("and", is_finite, lowering.negate(is_subnormal)),
        "subnormal": is_subnormal,
    }
    for question, answer in answers.items():
        if question in instruction.modifiers:
            lowering.write(instruction.operands[0], answer)
            return
    lowering.refuse(instruction)


EMITTERS: dict[str, Emitter] = {
    "sqrt": square_root,
    "rcp": reciprocal,
    "rsqrt": reciprocal_root,
    "copysign": _copy_sign,
    "testp": _test,
}
