"""Cellar. cvt: PTX ISA, "Data Movement and Conversion Instructions: cvt".

Floats become integers through double, which holds every f16 and f32 exactly. The code rounds to an
integral double, compares with the bounds, and converts values inside them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.ptx.types import ScalarType
from cudasync.softgpu.oracle.instructions import minifloats
from cudasync.softgpu.oracle.instructions.floating_point import clamp_below, read_float
from cudasync.softgpu.oracle.instructions.half_precision import from_double, to_double
from cudasync.softgpu.oracle.instructions.rounding_modes import MODES, flush, rounded, saturate

if TYPE_CHECKING:
    from cudasync.ptx.ir import Instruction
    from cudasync.softgpu.oracle.emission.emitter import Emitter

T = ScalarType
_HALVES = (T.F16, T.BF16)
_FLOATS = (*_HALVES, T.F32, T.F64)
_INTEGRAL = {"rni": "rint", "rzi": "trunc", "rmi": "floor", "rpi": "ceil"}


def convert(e: Emitter, i: Instruction) -> None:
    if len(i.types) != 2:
        e.refuse("this form of cvt is not implemented")
    target, source = i.types
    if any(type_.is_float and type_ not in _FLOATS for type_ in (target, source)):
        minifloats.convert(e, i)
        return
    is_clamped = "relu" in i.modifiers or "satfinite" in i.modifiers
    if len(i.operands) != 2 or "rna" in i.modifiers:
        e.refuse("this form of cvt is not implemented")
    if is_clamped and not (target in _HALVES and source is T.F32):
        e.refuse("cvt has .relu and .satfinite only from .f32 to half types")
    if source.is_float and target.is_float:
        result = _float_to_float(e, i, target, source)
    elif source.is_float:
        result = _float_to_integer(e, i, target, source)
    elif target.is_float:
        result = _integer_to_float(e, i, target, source)
    else:
        result = _integer_to_integer(e, i, target, source)
    e.write(i.operands[0], result, target)


def _integer_to_integer(e: Emitter, i: Instruction, target: ScalarType, source: ScalarType) -> str:
    value = e.read(i.operands[1], source)
    wide = e.value(f"{'sext' if source.is_signed else 'zext'} i{source.bits} {value} to i128")
    if "sat" in i.modifiers:
        low = -(1 << (target.bits - 1)) if target.is_signed else 0
        high = (1 << (target.bits - target.is_signed)) - 1
        wide = e.select(e.value(f"icmp slt i128 {wide}, {low}"), "i128", str(low), wide)
        wide = e.select(e.value(f"icmp sgt i128 {wide}, {high}"), "i128", str(high), wide)
    return e.value(f"trunc i128 {wide} to i{target.bits}")


def _as_double(e: Emitter, i: Instruction, source: ScalarType) -> str:
    value = read_float(e, i, 1, source)
    if source in _HALVES:
        return to_double(e, value, source)
    return e.value(f"fpext float {value} to double") if source is T.F32 else value


def _float_to_integer(e: Emitter, i: Instruction, target: ScalarType, source: ScalarType) -> str:
    mode = next((m for m in i.modifiers if m in _INTEGRAL), None)
    if mode is None:
        e.refuse("cvt from a float to an integer needs .rni, .rzi, .rmi or .rpi")
    value = _as_double(e, i, source)
    whole = e.call("double", f"llvm.{_INTEGRAL[mode]}.f64", ("double", value))
    bits = target.bits
    low = -(1 << (bits - 1)) if target.is_signed else 0
    # The first number beyond the range is a power of two, so it is a double.
    beyond = 1 << (bits - target.is_signed)
    is_low = e.value(f"fcmp olt double {whole}, {float(low):.1f}")
    is_high = e.value(f"fcmp oge double {whole}, {float(beyond):.1f}")
    is_nan = e.value(f"fcmp uno double {whole}, {whole}")
    unsafe = e.value(f"or i1 {is_nan}, {e.value(f'or i1 {is_low}, {is_high}')}")
    safe = e.select(unsafe, "double", "0.0", whole)
    cast = "fptosi" if target.is_signed else "fptoui"
    result = e.value(f"{cast} double {safe} to i64")
    result = e.value(f"trunc i64 {result} to i{bits}") if bits < 64 else result
    width = f"i{bits}"
    result = e.select(is_low, width, str(low), result)
    result = e.select(is_high, width, str(beyond - 1), result)
    # PTX ISA, cvt: NaN gives 0, but only the highest bit from .f64 or to a 64-bit integer.
    is_wide = source is T.F64 or bits == 64
    return e.select(is_nan, width, str(1 << (bits - 1)) if is_wide else "0", result)


def _integer_to_float(e: Emitter, i: Instruction, target: ScalarType, source: ScalarType) -> str:
    mode = next((m for m in i.modifiers if m in MODES), None)
    if mode is None:
        e.refuse("cvt from an integer to a float needs .rn, .rz, .rm or .rp")
    value = e.read(i.operands[1], source)
    cast = "sitofp" if source.is_signed else "uitofp"
    if target in _HALVES:
        wide = _integer_to_odd_double(e, cast, source, value)
        if "sat" in i.modifiers:
            wide = saturate(e, wide, T.F64)
        return from_double(e, wide, target, mode)
    result = rounded(e, cast, mode, target, (source, value))
    return saturate(e, result, target) if "sat" in i.modifiers else result


def _integer_to_odd_double(e: Emitter, cast: str, source: ScalarType, value: str) -> str:
    """A double rounded to odd: its last bit is set if it is inexact, so it may be rounded again."""
    low, high, cut = (rounded(e, cast, m, T.F64, (source, value)) for m in ("rm", "rp", "rz"))
    is_inexact = e.value(f"fcmp one double {low}, {high}")
    bits = e.value(f"or i64 {e.value(f'bitcast double {cut} to i64')}, 1")
    # Zero must not become -0, as rounding down would make it.
    exact = e.value(f"{cast} i{source.bits} {value} to double")
    return e.select(is_inexact, "double", e.value(f"bitcast i64 {bits} to double"), exact)


def _float_to_float(e: Emitter, i: Instruction, target: ScalarType, source: ScalarType) -> str:
    value = _as_double(e, i, source)
    integral = next((m for m in i.modifiers if m in _INTEGRAL), None)
    if integral is not None:
        value = e.call("double", f"llvm.{_INTEGRAL[integral]}.f64", ("double", value))
    mode = next((m for m in i.modifiers if m in MODES), "rn")
    if target in _HALVES:
        if "sat" in i.modifiers:
            value = saturate(e, value, T.F64)
        if "relu" in i.modifiers:
            value = clamp_below(e, value)
        half = from_double(e, value, target, mode)
        if (target, source) == (T.BF16, T.F64):
            # Hardware converts an f64 by integer arithmetic, with another NaN.
            is_nan = e.value(f"fcmp uno double {value}, {value}")
            half = e.select(is_nan, "i16", str(0x7FC0), half)
        return _finite(e, half, target) if "satfinite" in i.modifiers else half
    if target is T.F32:
        value = rounded(e, "fptrunc", mode, T.F32, (T.F64, value))
        if "ftz" in i.modifiers:
            value = flush(e, value, T.F32)
    return saturate(e, value, target) if "sat" in i.modifiers else value


def _finite(e: Emitter, half: str, type_: ScalarType) -> str:
    """The greatest number in place of an infinity."""
    infinity = 0x7C00 if type_ is T.F16 else 0x7F80
    size = e.value(f"and i16 {half}, 32767")
    is_infinite = e.value(f"icmp eq i16 {size}, {infinity}")
    most = e.value(f"or i16 {e.value(f'and i16 {half}, -32768')}, {infinity - 1}")
    return e.select(is_infinite, "i16", most, half)
