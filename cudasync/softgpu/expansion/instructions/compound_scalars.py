"""Cellar. Scalar instructions that stand for two or three others in sequence.

min and max of three numbers, .xorsign.abs, .relu of integers, sums of an f32 and a half.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.ptx.ir import Integer
from cudasync.ptx.types import ScalarType

if TYPE_CHECKING:
    from cudasync.ptx.ir import Instruction
    from cudasync.softgpu.expansion.rewriter import Parts, Rule

T = ScalarType
_SCALARS = (T.F16, T.BF16, T.F32)
_PLAIN = {"ftz", "NaN"}


def _extreme(parts: Parts, instruction: Instruction) -> bool:
    """Expand the longer forms of min and max."""
    type_ = instruction.type
    modifiers = set(instruction.modifiers)
    target, *sources = instruction.operands
    if type_ is T.S32 and modifiers == {"relu"}:
        found = parts.compute(f"{instruction.opcode}.s32", *sources)
        parts.settle("max.s32", target, found, Integer(0))
        return True
    if type_ not in _SCALARS or not (len(sources) == 3 or "xorsign" in modifiers):
        return False
    if not modifiers <= {*_PLAIN, "abs", "xorsign"}:
        return False
    suffix = "".join(f".{each}" for each in instruction.modifiers if each in _PLAIN)
    bits = f"b{type_.bits}"
    name = f"{instruction.opcode}{suffix}.{type_.value}"
    values = list(sources)
    if "abs" in modifiers:
        values = [parts.compute(f"abs.{type_.value}", each, type_=T(bits)) for each in sources]
    found = parts.compute(name, values[0], values[1], type_=T(bits))
    if len(values) == 3:
        found = parts.compute(name, found, values[2], type_=T(bits))
    if "xorsign" in modifiers:
        # The sign of the product; a NaN keeps its own.
        top = Integer(1 << (type_.bits - 1))
        differing = parts.compute(f"xor.{bits}", sources[0], sources[1])
        sign = parts.compute(f"and.{bits}", differing, top)
        signed = parts.compute(f"or.{bits}", found, sign)
        is_nan = parts.compute(f"setp.nan.{type_.value}", found, found, type_=T.PRED)
        found = parts.compute(f"selp.{bits}", found, signed, is_nan)
    parts.write(target, found, T(bits))
    return True


def _mixed(parts: Parts, instruction: Instruction) -> bool:
    """Expand add, sub and fma of f32 with halves: halves are exact as f32."""
    if len(instruction.types) != 2:
        return False
    wide, narrow = instruction.types
    if wide is not T.F32 or narrow not in (T.F16, T.BF16):
        return False
    target, *sources = instruction.operands
    *halves, last = sources
    widened = [parts.compute(f"cvt.f32.{narrow.value}", each) for each in halves]
    name = ".".join((instruction.opcode, *instruction.modifiers, "f32"))
    parts.settle(name, target, *widened, last)
    return True


def _extend(parts: Parts, instruction: Instruction) -> bool:
    """Expand szext: bits from b up become copies of bit b - 1, or zeros."""
    if instruction.type not in (T.S32, T.U32) or len(instruction.modifiers) != 1:
        return False
    target, value, count = instruction.operands
    make = parts.compute
    place = make("and.b32", count, Integer(31))
    above = make("shl.b32", Integer(-1), place)
    if "clamp" in instruction.modifiers:
        is_beyond = make("setp.ge.u32", count, Integer(32), type_=T.PRED)
        above = make("selp.b32", Integer(0), above, is_beyond)
    low = make("and.b32", value, make("not.b32", above))
    if instruction.type is T.U32:
        parts.write(target, low, T.B32)
        return True
    below = make("and.b32", make("sub.s32", place, Integer(1)), Integer(31))
    bit = make("and.b32", make("shr.u32", value, below), Integer(1))
    is_some = make("setp.ne.s32", place, Integer(0), type_=T.PRED)
    is_set = make("setp.ne.s32", bit, Integer(0), type_=T.PRED)
    extends = make("and.pred", is_some, is_set)
    sign = make("selp.b32", above, Integer(0), extends)
    parts.settle("or.b32", target, low, sign)
    return True


def _breakpoint(parts: Parts, _instruction: Instruction) -> bool:
    """Expand brkpt into a trap: there is no debugger that could continue from here."""
    parts.settle("trap")
    return True


RULES: dict[str, Rule] = {
    "min": _extreme,
    "max": _extreme,
    "add": _mixed,
    "sub": _mixed,
    "fma": _mixed,
    "brkpt": _breakpoint,
    "szext": _extend,
}
