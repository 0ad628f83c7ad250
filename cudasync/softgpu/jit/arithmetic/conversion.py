"""Cellar, jit. cvt: between integers, floats, and both, with rounding and saturation.

A float becomes an integer by clamping to the integer's range, with or without .sat. As in hardware,
NaN becomes 0 if source and result have at most 32 bits, otherwise the number with only the highest
bit set. An integer becomes the nearest integer of another width only with .sat, otherwise its low
bits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.ptx.types import ScalarType
from cudasync.softgpu.jit.arithmetic import bfloat16, half_precision, minifloats
from cudasync.softgpu.jit.arithmetic.float_to_integer import to_integer
from cudasync.softgpu.jit.arithmetic.floating_point import clamp_below, flush, read, saturate
from cudasync.softgpu.jit.arithmetic.rounding_modes import DIRECTED, rounded
from cudasync.softgpu.jit.vector_ir.lowering_context import fit
from cudasync.softgpu.jit.vector_ir.values import Value, bits_of, integer, llvm_type

if TYPE_CHECKING:
    from cudasync.ptx import ir
    from cudasync.softgpu.jit.vector_ir.builder import Builder
    from cudasync.softgpu.jit.vector_ir.lowering_context import Emitter, Lowering

_TO_INTEGRAL = {"rni": "rint", "rzi": "trunc", "rmi": "floor", "rpi": "ceil"}
_FLOATS = (ScalarType.F16, ScalarType.BF16, ScalarType.F32, ScalarType.F64)
# The low bits of a 64-bit integer that may not fit into a double.
_BEYOND_DOUBLE = (1 << 11) - 1


def _convert(lowering: Lowering, instruction: ir.Instruction) -> None:
    if len(instruction.types) != 2:
        lowering.refuse(instruction)
    target, source = instruction.types
    if any(each.is_float and each not in _FLOATS for each in (target, source)):
        minifloats.convert(lowering, instruction)
        return
    if len(instruction.operands) != 2 or not _may_clamp(instruction):
        lowering.refuse(instruction)
    if source.is_float:
        value = read(lowering, instruction.operands[1], source)
        value = flush(lowering, instruction, value)
        if target.is_float:
            result = _float_to_float(lowering, instruction, value, target)
        else:
            result = _float_to_integer(lowering, instruction, value, target)
    elif target.is_float:
        value = lowering.read(instruction.operands[1], source)
        result = _integer_to_float(lowering, instruction, value, source, target)
    else:
        value = lowering.read(instruction.operands[1], source)
        result = _integer_to_integer(lowering, instruction, value, source, target)
    if not target.is_float:
        result = fit(lowering, instruction.operands[0], result, target)
    lowering.write(instruction.operands[0], result)


def _may_clamp(instruction: ir.Instruction) -> bool:
    """Whether the types allow .relu and .satfinite, if these are present."""
    target, source = instruction.types
    is_clamped = not {"relu", "satfinite"}.isdisjoint(instruction.modifiers)
    is_rounded = not {"rna", *_TO_INTEGRAL, "sat"}.isdisjoint(instruction.modifiers)
    if "rna" in instruction.modifiers:
        return False
    fits = target in (ScalarType.F16, ScalarType.BF16) and source is ScalarType.F32
    return not is_clamped or (fits and not is_rounded)


def _rounding(instruction: ir.Instruction) -> str | None:
    return next((_TO_INTEGRAL[m] for m in instruction.modifiers if m in _TO_INTEGRAL), None)


def _directed(instruction: ir.Instruction) -> str | None:
    return next((m for m in instruction.modifiers if m in DIRECTED), None)


def _float_to_float(
    lowering: Lowering, instruction: ir.Instruction, value: Value, target: ScalarType
) -> Value:
    builder = lowering.builder
    rounding = _rounding(instruction)
    if rounding is not None:
        value = _to_integral(lowering, value, rounding)
    mode = _directed(instruction)
    if target is ScalarType.BF16:
        return _float_to_brain(lowering, instruction, value, mode or "rn")
    wanted = llvm_type(target)
    if bits_of(wanted) < bits_of(value.type):
        if mode is not None:
            if wanted == "half":
                value = half_precision.narrow_directed(builder, value, mode)
            else:
                value = rounded(lowering, "fptrunc", mode, wanted, value)
        elif (value.type, wanted) == ("double", "half"):
            value = half_precision.narrow(builder, value)
        else:
            value = builder.apply("fptrunc {T} {0} to {R}", wanted, value)
    elif bits_of(wanted) > bits_of(value.type):
        value = builder.apply("fpext {T} {0} to {R}", wanted, value)
    value = flush(lowering, instruction, value)
    if "satfinite" in instruction.modifiers:
        value = half_precision.finite(builder, value)
    if "sat" in instruction.modifiers:
        return saturate(builder, value)
    if "relu" in instruction.modifiers:
        return clamp_below(builder, value)
    return half_precision.canonical(builder, value) if wanted == "half" else value


def _float_to_brain(
    lowering: Lowering, instruction: ir.Instruction, value: Value, mode: str
) -> Value:
    builder = lowering.builder
    if value.type == "half":
        value = builder.apply("fpext {T} {0} to {R}", "float", value)
    if "relu" in instruction.modifiers:
        value = clamp_below(builder, value)
    if "sat" in instruction.modifiers:
        value = saturate(builder, value)
    result = bfloat16.narrow(builder, value, mode, nan=_brain_nan(instruction.types[1]))
    return bfloat16.finite(builder, result) if "satfinite" in instruction.modifiers else result


def _brain_nan(source: ScalarType) -> int:
    """The NaN that comes of a NaN. Hardware converts an f64 by integer arithmetic."""
    return 0x7FC0 if source is ScalarType.F64 else bfloat16.NAN


def _to_integral(lowering: Lowering, value: Value, rounding: str) -> Value:
    builder = lowering.builder
    if value.type != "half":
        return builder.intrinsic(rounding, value.type, value)
    wide = builder.apply("fpext {T} {0} to {R}", "float", value)
    rounded = builder.intrinsic(rounding, "float", wide)
    return builder.apply("fptrunc {T} {0} to {R}", "half", rounded)


def _float_to_integer(
    lowering: Lowering, instruction: ir.Instruction, value: Value, target: ScalarType
) -> Value:
    builder = lowering.builder
    rounding = _rounding(instruction)
    source = instruction.types[1]
    if value.type == "half":
        value = builder.apply("fpext {T} {0} to {R}", "float", value)
    if rounding not in (None, "trunc"):
        value = builder.intrinsic(str(rounding), value.type, value)
    is_small = source.bits <= 32 and target.bits <= 32
    nan = 0 if is_small else 1 << (target.bits - 1)
    type_ = llvm_type(target)
    return to_integer(builder, value, type_, is_signed=target.is_signed, nan=nan)


def _integer_to_float(
    lowering: Lowering,
    instruction: ir.Instruction,
    value: Value,
    source: ScalarType,
    target: ScalarType,
) -> Value:
    builder = lowering.builder
    sign = "s" if source.is_signed else "u"
    value = builder.flat(value)
    mode = _directed(instruction)
    operation = f"{sign}itofp {{T}} {{0}} to {{R}}"
    wanted = llvm_type(target)
    if target in (ScalarType.F16, ScalarType.BF16):
        if source.bits == 64:
            value = _sticky(builder, value, is_signed=source.is_signed)
        exact = builder.apply(operation, "double", value)
        if "sat" in instruction.modifiers:
            exact = saturate(builder, exact)
        if target is ScalarType.BF16:
            return bfloat16.narrow(builder, exact, mode or "rn")
        if mode is not None:
            return half_precision.narrow_directed(builder, exact, mode)
        return half_precision.narrow(builder, exact)
    if mode is None:
        result = builder.apply(operation, wanted, value)
    elif source.bits <= 32:
        # The way through double is exact. LLVM's vector form of u32 to f32 turns 0 into -0 when it
        # rounds down.
        exact = builder.apply(operation, "double", value)
        result = exact if wanted == "double" else rounded(lowering, "fptrunc", mode, wanted, exact)
    else:
        result = rounded(lowering, f"{sign}itofp", mode, wanted, value)
    return saturate(builder, result) if "sat" in instruction.modifiers else result


def _sticky(builder: Builder, value: Value, *, is_signed: bool) -> Value:
    """A 64-bit integer as one that fits into a double: from 2**53 on, rounded to odd."""
    low = builder.binary("and", value, integer("i64", _BEYOND_DOUBLE))
    kept = builder.binary("xor", value, low)
    is_exact = builder.compare("icmp eq", low, integer("i64", 0))
    odd = builder.binary("or", kept, integer("i64", _BEYOND_DOUBLE + 1))
    rounded_value = builder.select(is_exact, kept, odd)
    size = builder.intrinsic("abs", "i64", value, flag="false") if is_signed else value
    is_small = builder.compare("icmp ult", size, integer("i64", 1 << 53))
    return builder.select(is_small, value, rounded_value)


def _integer_to_integer(
    lowering: Lowering,
    instruction: ir.Instruction,
    value: Value,
    source: ScalarType,
    target: ScalarType,
) -> Value:
    builder = lowering.builder
    if "sat" in instruction.modifiers:
        value = _clamped(lowering, value, source, target)
    if target.bits <= source.bits:
        return builder.truncate(value, llvm_type(target))
    return builder.extend(value, llvm_type(target), is_signed=source.is_signed)


def _clamped(lowering: Lowering, value: Value, source: ScalarType, target: ScalarType) -> Value:
    """The nearest value that `target` can hold, still as wide as `source`."""
    builder = lowering.builder
    sign = "s" if source.is_signed else "u"
    least = -(1 << (target.bits - 1)) if target.is_signed else 0
    most = (1 << (target.bits - target.is_signed)) - 1
    bits = source.bits
    source_least = -(1 << (bits - 1)) if source.is_signed else 0
    source_most = (1 << (bits - source.is_signed)) - 1
    value = builder.flat(value)
    if least > source_least:
        value = builder.intrinsic(f"{sign}max", value.type, value, integer(value.type, least))
    if most < source_most:
        value = builder.intrinsic(f"{sign}min", value.type, value, integer(value.type, most))
    return value


EMITTERS: dict[str, Emitter] = {"cvt": _convert}
