"""Cellar. Two numbers in one register: f16x2, bf16x2, s16x2, u16x2 and f32x2.

PTX ISA, "Half Precision Floating Point Instructions" and others: each half of the result comes from
the same half of the sources. The scalar instruction of the same name computes it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.ptx.ir import Integer, Pair
from cudasync.ptx.types import ScalarType
from cudasync.softgpu.expansion.rewriter import name_of

if TYPE_CHECKING:
    from cudasync.ptx.ir import Instruction
    from cudasync.softgpu.expansion.rewriter import Parts, Rule

T = ScalarType
PART_OF = {
    T.F16X2: T.F16, T.BF16X2: T.BF16, T.S16X2: T.S16, T.U16X2: T.U16, T.F32X2: T.F32,
}  # fmt: skip
_HALVES = (T.F16X2, T.BF16X2)
_TRUE = {T.F16X2: 0x3C00, T.BF16X2: 0x3F80}


def _each_half(parts: Parts, instruction: Instruction) -> bool:
    """The same operation on both halves."""
    if len(instruction.types) != 1 or instruction.type not in PART_OF:
        return False
    part = PART_OF[instruction.type]
    split = [parts.halves(each, part) for each in instruction.operands[1:]]
    name = name_of(instruction, part)
    bits = T(f"b{part.bits}")
    if part is T.S16:
        name = name.replace(".relu", "")
    low, high = (parts.compute(name, *sources, type_=bits) for sources in zip(*split, strict=True))
    if part is T.S16 and "relu" in instruction.modifiers:
        low, high = (parts.compute("max.s16", each, Integer(0)) for each in (low, high))
    parts.join(instruction.operands[0], low, high, part)
    return True


def _set_predicates(parts: Parts, instruction: Instruction) -> bool:
    """Expand setp: the first predicate is for the low halves, the second for the high ones."""
    target = instruction.operands[0]
    if instruction.type not in _HALVES or not isinstance(target, Pair):
        return False
    part = PART_OF[instruction.type]
    split = [parts.halves(each, part) for each in instruction.operands[1:3]]
    name = name_of(instruction, part)
    combined = instruction.operands[3:]
    low, high = (
        parts.compute(name, *sources, *combined, type_=T.PRED)
        for sources in zip(*split, strict=True)
    )
    parts.write(target.first, low, T.PRED)
    parts.write(target.second, high, T.PRED)
    return True


def _set_halves(parts: Parts, instruction: Instruction) -> bool:
    """Expand set: each half becomes 1.0, or all ones in an integer."""
    if len(instruction.types) != 2 or instruction.type not in _HALVES:
        return False
    target, source = instruction.types
    if target not in (source, T.U32, T.S32):
        return False
    true = Integer(_TRUE.get(target, 0xFFFF))
    part = PART_OF[source]
    split = [parts.halves(each, part) for each in instruction.operands[1:3]]
    comparison = name_of(instruction, part).replace("set", "setp", 1)
    combined = instruction.operands[3:]
    found = []
    for sources in zip(*split, strict=True):
        flag = parts.compute(comparison, *sources, *combined, type_=T.PRED)
        found.append(parts.compute("selp.b16", true, Integer(0), flag))
    parts.join(instruction.operands[0], found[0], found[1], part)
    return True


RULES: dict[str, Rule] = {
    **dict.fromkeys(
        ("add", "sub", "mul", "fma", "min", "max", "neg", "abs", "ex2", "tanh"), _each_half
    ),
    "setp": _set_predicates,
    "set": _set_halves,
}
