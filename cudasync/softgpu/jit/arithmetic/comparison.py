"""Cellar, jit. setp, set, selp, slct: comparisons, and selections based on them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.ptx.ir import Pair
from cudasync.ptx.types import ScalarType
from cudasync.softgpu.jit.arithmetic.compare_narrowing import compare_narrow
from cudasync.softgpu.jit.arithmetic.floating_point import flush, read
from cudasync.softgpu.jit.vector_ir.values import Value, integer, llvm_type, zero

if TYPE_CHECKING:
    from cudasync.ptx import ir
    from cudasync.softgpu.jit.vector_ir.lowering_context import Emitter, Lowering

_OF_FLOATS = {
    "eq": "oeq",
    "ne": "one",
    "lt": "olt",
    "le": "ole",
    "gt": "ogt",
    "ge": "oge",
    "equ": "ueq",
    "neu": "une",
    "ltu": "ult",
    "leu": "ule",
    "gtu": "ugt",
    "geu": "uge",
    "num": "ord",
    "nan": "uno",
}
# lo, ls, hi, hs are the unsigned forms of lt, le, gt, ge.
_UNSIGNED = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}
_OF_INTEGERS = ("eq", "ne", "lt", "le", "gt", "ge")
_FLOATS = (ScalarType.F16, ScalarType.BF16, ScalarType.F32, ScalarType.F64)
_ONES = {ScalarType.F16: 0x3C00, ScalarType.BF16: 0x3F80}
_COMBINING = ("and", "or", "xor")


def _comparison(lowering: Lowering, instruction: ir.Instruction, type_: ScalarType) -> Value:
    """Operands 1 and 2 compared as `type_`, before a predicate is combined with the result."""
    builder = lowering.builder
    relation = instruction.modifiers[0]
    if type_.is_float:
        if relation not in _OF_FLOATS or type_ not in _FLOATS:
            lowering.refuse(instruction)
        first, second = (
            flush(lowering, instruction, read(lowering, each, type_))
            for each in instruction.operands[1:3]
        )
        return builder.compare(f"fcmp {_OF_FLOATS[relation]}", first, second)
    first, second = (lowering.read(each, type_) for each in instruction.operands[1:3])
    is_signed = type_.is_signed and relation not in _UNSIGNED
    relation = _UNSIGNED.get(relation, relation)
    if relation not in _OF_INTEGERS:
        lowering.refuse(instruction)
    narrow = compare_narrow(builder, relation, first, second, is_signed=is_signed)
    if narrow is not None:
        return narrow
    sign = "" if relation in ("eq", "ne") else ("s" if is_signed else "u")
    return builder.compare(f"icmp {sign}{relation}", first, second)


def _combined(lowering: Lowering, instruction: ir.Instruction, flag: Value) -> Value:
    """`flag` combined with the predicate operand by .and, .or or .xor, if there is one."""
    if len(instruction.operands) < 4:
        return flag
    other = lowering.read(instruction.operands[3], ScalarType.PRED)
    for operation in _COMBINING:
        if operation in instruction.modifiers:
            return lowering.builder.binary(operation, flag, other)
    lowering.refuse(instruction)


def _set_predicate(lowering: Lowering, instruction: ir.Instruction) -> None:
    flag = _comparison(lowering, instruction, instruction.type)
    target = instruction.operands[0]
    if not isinstance(target, Pair):
        lowering.write(target, _combined(lowering, instruction, flag))
        return
    result = _combined(lowering, instruction, flag)
    opposite = _combined(lowering, instruction, lowering.negate(flag))
    lowering.write(target.first, result)
    lowering.write(target.second, opposite)


def _set(lowering: Lowering, instruction: ir.Instruction) -> None:
    """set: all ones or 1.0 for true, 0 for false."""
    if len(instruction.types) != 2:
        lowering.refuse(instruction)
    result_type, source_type = instruction.types
    flag = _combined(lowering, instruction, _comparison(lowering, instruction, source_type))
    builder = lowering.builder
    if result_type is ScalarType.F32:
        result = builder.apply("uitofp {T} {0} to {R}", "float", flag)
    elif result_type in _ONES:
        result = builder.select(flag, integer("i16", _ONES[result_type]), integer("i16", 0))
    elif result_type.is_float:
        lowering.refuse(instruction)
    else:
        result = builder.apply("sext {T} {0} to {R}", llvm_type(result_type), flag)
    lowering.write(instruction.operands[0], result)


def _select(lowering: Lowering, instruction: ir.Instruction) -> None:
    """selp d, a, b, p: a where p, else b."""
    first, second = (lowering.read(each, instruction.type) for each in instruction.operands[1:3])
    condition = lowering.read(instruction.operands[3], ScalarType.PRED)
    lowering.write(instruction.operands[0], lowering.builder.select(condition, first, second))


def _select_by_sign(lowering: Lowering, instruction: ir.Instruction) -> None:
    """slct d, a, b, c: a where c >= 0, else b; -0 counts as 0, a NaN as negative."""
    result_type, source_type = instruction.types[0], instruction.types[-1]
    builder = lowering.builder
    first, second = (lowering.read(each, result_type) for each in instruction.operands[1:3])
    decider = lowering.read(instruction.operands[3], source_type)
    if source_type.is_float:
        decider = flush(lowering, instruction, builder.flat(decider))
        condition = builder.compare("fcmp oge", decider, zero(decider.type))
    else:
        condition = builder.compare("icmp sge", decider, integer(decider.type, 0))
    lowering.write(instruction.operands[0], builder.select(condition, first, second))


EMITTERS: dict[str, Emitter] = {
    "setp": _set_predicate,
    "set": _set,
    "selp": _select,
    "slct": _select_by_sign,
}
