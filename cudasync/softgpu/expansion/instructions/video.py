"""Cellar. Video instructions: arithmetic on whole words, on two halves or on four bytes.

PTX ISA, "Video Instructions": sources are extended by their own types, the operation has enough
bits, and .sat clamps to the range of the result's type. Then .add, .min or .max combines the result
with the last operand. Byte selectors, byte masks (`a.b0`) and averages are left to be refused.

One form is as in hardware, against the ISA: vadd.u32.u32.u32.sat wraps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.ptx.ir import Integer, Register
from cudasync.ptx.types import ScalarType

if TYPE_CHECKING:
    from cudasync.ptx.ir import Instruction, Operand
    from cudasync.softgpu.expansion.rewriter import Parts, Rule

T = ScalarType
_WORDS = (T.U32, T.S32)
_OPERATIONS = ("vabsdiff", "vadd", "vsub", "vmin", "vmax")


def _computed(parts: Parts, operation: str, wide: str, first: Operand, second: Operand) -> Register:
    """The operation on two sources as signed integers of `wide`, which cannot overflow there."""
    if operation == "vabsdiff":
        return parts.compute(f"abs.{wide}", parts.compute(f"sub.{wide}", first, second))
    return parts.compute(f"{operation[1:]}.{wide}", first, second)


def _clamped(parts: Parts, value: Register, bits: int, wide: str, *, is_signed: bool) -> Register:
    least = -(1 << (bits - 1)) if is_signed else 0
    most = (1 << (bits - is_signed)) - 1
    low = parts.compute(f"max.{wide}", value, Integer(least))
    return parts.compute(f"min.{wide}", low, Integer(most))


def _lanes(operation: str, count: int) -> Rule:
    """The rule for `operation` on `count` parts of a word."""
    bits = 32 // count

    def rule(parts: Parts, instruction: Instruction) -> bool:
        if not _is_known(instruction, {"sat", "add"}) or len(instruction.operands) != 4:
            return False
        target, first, second, last = instruction.operands
        result, *sources = instruction.types
        is_sum = "add" in instruction.modifiers
        total: Operand = last if is_sum else Integer(0)
        for index in range(count):
            place, length = Integer(index * bits), Integer(bits)
            taken = [
                parts.compute(f"bfe.{type_.value}", each, place, length, type_=T.S32)
                for each, type_ in zip((first, second), sources, strict=True)
            ]
            found = _computed(parts, operation, "s32", *taken)
            if "sat" in instruction.modifiers:
                found = _clamped(parts, found, bits, "s32", is_signed=result.is_signed)
            if is_sum:
                total = parts.compute("add.s32", total, found)
            else:
                total = parts.compute("bfi.b32", found, total, place, length)
        parts.write(target, total, T.B32)
        return True

    return rule


def _word(parts: Parts, instruction: Instruction) -> bool:
    """vadd, vsub, vabsdiff, vmin, vmax on whole words."""
    combining = [each for each in instruction.modifiers if each in ("add", "min", "max")]
    if not _is_known(instruction, {"sat", "add", "min", "max"}) or len(combining) > 1:
        return False
    target, first, second, *last = instruction.operands
    if len(last) != len(combining):
        return False
    result, *sources = instruction.types
    wide = [
        parts.compute(f"cvt.s64.{type_.value}", each)
        for each, type_ in zip((first, second), sources, strict=True)
    ]
    found = _computed(parts, instruction.opcode, "s64", *wide)
    is_wrapped = instruction.opcode == "vadd" and set(instruction.types) == {T.U32}
    if "sat" in instruction.modifiers and not is_wrapped:
        found = _clamped(parts, found, 32, "s64", is_signed=result.is_signed)
    word: Operand = parts.compute("cvt.u32.u64", found)
    if combining:
        word = parts.compute(f"{combining[0]}.{result.value}", word, last[0])
    parts.write(target, word, T.B32)
    return True


def _is_known(instruction: Instruction, modifiers: set[str]) -> bool:
    return (
        modifiers.issuperset(instruction.modifiers)
        and len(instruction.types) == 3
        and all(each in _WORDS for each in instruction.types)
    )


RULES: dict[str, Rule] = {
    **dict.fromkeys(_OPERATIONS, _word),
    **{f"{name}{count}": _lanes(name, count) for name in _OPERATIONS for count in (2, 4)},
}
