"""Cellar. Comparison and selection: PTX ISA, "Comparison and Selection Instructions"."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.ptx.ir import Pair
from cudasync.ptx.types import ScalarType
from cudasync.softgpu.oracle.emission.emitter import llvm_type
from cudasync.softgpu.oracle.instructions.floating_point import read_float
from cudasync.softgpu.oracle.instructions.half_precision import to_double

if TYPE_CHECKING:
    from cudasync.ptx.ir import Instruction
    from cudasync.softgpu.oracle.emission.emitter import Emitter

T = ScalarType

# LLVM's names of float comparisons: o is false and u is true for a NaN.
_FLOAT = {
    "eq": "oeq", "ne": "one", "lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge",
    "equ": "ueq", "neu": "une", "ltu": "ult", "leu": "ule", "gtu": "ugt", "geu": "uge",
    "num": "ord", "nan": "uno",
}  # fmt: skip
_INTEGER = {
    "eq": "eq", "ne": "ne", "lt": "{}lt", "le": "{}le", "gt": "{}gt", "ge": "{}ge",
    "lo": "ult", "ls": "ule", "hi": "ugt", "hs": "uge",
}  # fmt: skip
_FLOATS = (T.F16, T.BF16, T.F32, T.F64)
COMPARISONS = frozenset(_FLOAT) | frozenset(_INTEGER)


def _compare(e: Emitter, i: Instruction) -> str:
    """a CmpOp b as i1, in the last type of the instruction."""
    type_ = i.type
    name = i.modifiers[0]
    if type_.is_float:
        if type_ not in _FLOATS:
            e.refuse(f"a comparison of {type_!r} is not implemented")
        a, b = read_float(e, i, 1), read_float(e, i, 2)
        if type_ in (T.F16, T.BF16):
            a, b, type_ = to_double(e, a, type_), to_double(e, b, type_), T.F64
        if name not in _FLOAT:
            e.refuse(f"comparison .{name} is not for floating-point types")
        return e.value(f"fcmp {_FLOAT[name]} {llvm_type(type_)} {a}, {b}")
    if name not in _INTEGER:
        e.refuse(f"comparison .{name} is not for integers")
    a, b = e.read(i.operands[1], type_), e.read(i.operands[2], type_)
    predicate = _INTEGER[name].format("s" if type_.is_signed else "u")
    return e.value(f"icmp {predicate} {llvm_type(type_)} {a}, {b}")


def _combine(e: Emitter, i: Instruction, value: str) -> str:
    operation = next((m for m in i.modifiers[1:] if m in ("and", "or", "xor")), None)
    if operation is None:
        return value
    return e.value(f"{operation} i1 {value}, {e.read(i.operands[3], T.PRED)}")


def set_predicate(e: Emitter, i: Instruction) -> None:
    """Lower setp: p is the comparison, q its negation, each combined with c."""
    value = _compare(e, i)
    target = i.operands[0]
    if not isinstance(target, Pair):
        e.write(target, _combine(e, i, value), T.PRED)
        return
    first = _combine(e, i, value)
    second = _combine(e, i, e.value(f"xor i1 {value}, true"))
    e.write(target.first, first, T.PRED)
    e.write(target.second, second, T.PRED)


def set_number(e: Emitter, i: Instruction) -> None:
    """Lower set: all ones or 0, or 1.0 or 0.0."""
    value = _combine(e, i, _compare(e, i))
    target = i.types[0]
    if target is T.F32:
        result = e.select(value, "float", "1.0", "0.0")
    elif target in (T.F16, T.BF16):
        result = e.select(value, "i16", str(0x3C00 if target is T.F16 else 0x3F80), "0")
    elif target.is_float:
        e.refuse(f"set to {target!r} is not implemented")
    else:
        result = e.value(f"sext i1 {value} to i{target.bits}")
    e.write(i.operands[0], result, target)


def select(e: Emitter, i: Instruction) -> None:
    """Lower selp."""
    a, b = e.read(i.operands[1], i.type), e.read(i.operands[2], i.type)
    condition = e.read(i.operands[3], T.PRED)
    e.write(i.operands[0], e.select(condition, llvm_type(i.type), a, b), i.type)


def select_by_sign(e: Emitter, i: Instruction) -> None:
    """Lower slct: a if c >= 0, otherwise b, also for a NaN."""
    type_ = i.types[0]
    a, b = e.read(i.operands[1], type_), e.read(i.operands[2], type_)
    c = read_float(e, i, 3, i.types[1])
    if i.types[1] is T.F32:
        condition = e.value(f"fcmp oge float {c}, 0.0")
    else:
        condition = e.value(f"icmp sge i32 {c}, 0")
    e.write(i.operands[0], e.select(condition, llvm_type(type_), a, b), type_)
