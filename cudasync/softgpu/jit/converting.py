"""Cellar, jit. cvt: between integers, floats, and both, with rounding and saturation.

A float becomes an integer by clamping to the integer's range, with or without .sat. NaN becomes
0 where source and result have at most 32 bits, else the number with only the highest bit set, as
hardware has it. An integer becomes the nearest integer of another width only with .sat, else its
low bits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.ptx.types import ScalarType
from cudasync.softgpu.jit import half
from cudasync.softgpu.jit.floating import flush, saturate
from cudasync.softgpu.jit.memory import fit
from cudasync.softgpu.jit.rounding import DIRECTED, rounded
from cudasync.softgpu.jit.values import Value, bits_of, integer, llvm_type

if TYPE_CHECKING:
    from cudasync.ptx import ir
    from cudasync.softgpu.jit.lowering import Emitter, Lowering

_TO_INTEGRAL = {"rni": "rint", "rzi": "trunc", "rmi": "floor", "rpi": "ceil"}
_FLOATS = (ScalarType.F16, ScalarType.F32, ScalarType.F64)


def _convert(lowering: Lowering, instruction: ir.Instruction) -> None:
    if len(instruction.types) != 2 or len(instruction.operands) != 2:
        _convert_to_pair(lowering, instruction)
        return
    target, source = instruction.types
    for each in (target, source):
        if each.is_float and each not in _FLOATS:
            lowering.refuse(instruction)
    value = lowering.read(instruction.operands[1], source)
    if source.is_float:
        value = flush(lowering, instruction, lowering.builder.flat(value))
        if target.is_float:
            result = _float_to_float(lowering, instruction, value, llvm_type(target))
        else:
            result = _float_to_integer(lowering, instruction, value, target)
    elif target.is_float:
        result = _integer_to_float(lowering, instruction, value, source, llvm_type(target))
    else:
        result = _integer_to_integer(lowering, instruction, value, source, target)
    if not target.is_float:
        result = fit(lowering, instruction.operands[0], result, target)
    lowering.write(instruction.operands[0], result)


def _rounding(instruction: ir.Instruction) -> str | None:
    return next((_TO_INTEGRAL[m] for m in instruction.modifiers if m in _TO_INTEGRAL), None)


def _directed(instruction: ir.Instruction) -> str | None:
    return next((m for m in instruction.modifiers if m in DIRECTED), None)


def _float_to_float(
    lowering: Lowering, instruction: ir.Instruction, value: Value, target: str
) -> Value:
    builder = lowering.builder
    rounding = _rounding(instruction)
    if rounding is not None:
        value = _to_integral(lowering, value, rounding)
    mode = _directed(instruction)
    if bits_of(target) < bits_of(value.type):
        if mode is not None:
            if target == "half":
                value = half.narrow_directed(builder, value, mode)
            else:
                value = rounded(lowering, "fptrunc", mode, target, value)
        elif (value.type, target) == ("double", "half"):
            value = half.narrow(builder, value)
        else:
            value = builder.apply("fptrunc {T} {0} to {R}", target, value)
    elif bits_of(target) > bits_of(value.type):
        value = builder.apply("fpext {T} {0} to {R}", target, value)
    value = flush(lowering, instruction, value)
    if "relu" in instruction.modifiers:
        lowering.refuse(instruction)
    return saturate(builder, value) if "sat" in instruction.modifiers else value


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
    sign = "s" if target.is_signed else "u"
    # The intrinsic clamps, and takes NaN to 0.
    result = builder.intrinsic(f"fpto{sign}i.sat", llvm_type(target), value)
    if source.bits <= 32 and target.bits <= 32:
        return result
    is_nan = builder.compare("fcmp uno", value, value)
    return builder.select(is_nan, integer(result.type, 1 << (target.bits - 1)), result)


def _integer_to_float(
    lowering: Lowering,
    instruction: ir.Instruction,
    value: Value,
    source: ScalarType,
    target: str,
) -> Value:
    builder = lowering.builder
    sign = "s" if source.is_signed else "u"
    value = builder.flat(value)
    mode = _directed(instruction)
    operation = f"{sign}itofp {{T}} {{0}} to {{R}}"
    if mode is not None:
        if target == "half":
            lowering.refuse(instruction)
        if source.bits <= 32:
            # Exact on the way. LLVM's vector form of u32 to f32 makes 0 into -0 when it rounds
            # down.
            exact = builder.apply(operation, "double", value)
            result = (
                exact if target == "double" else rounded(lowering, "fptrunc", mode, target, exact)
            )
        else:
            result = rounded(lowering, f"{sign}itofp", mode, target, value)
    elif target == "half":
        # Beyond 2**53 an integer is rounded on its way, but there every f16 is infinite.
        result = half.narrow(builder, builder.apply(operation, "double", value))
    else:
        result = builder.apply(operation, target, value)
    return saturate(builder, result) if "sat" in instruction.modifiers else result


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


def _convert_to_pair(lowering: Lowering, instruction: ir.Instruction) -> None:
    """cvt.rn.f16x2.f32 d, a, b: a into the high half, b into the low one."""
    plain = {"rn"}.issuperset(instruction.modifiers)
    if instruction.types != (ScalarType.F16X2, ScalarType.F32) or not plain:
        lowering.refuse(instruction)
    builder = lowering.builder
    high, low = (
        builder.apply(
            "fptrunc {T} {0} to {R}", "half", builder.flat(lowering.read(each, ScalarType.F32))
        )
        for each in instruction.operands[1:]
    )
    lowering.write(instruction.operands[0], half.pack(builder, low, high))


EMITTERS: dict[str, Emitter] = {"cvt": _convert}
