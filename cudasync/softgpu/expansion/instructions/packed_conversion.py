"""Cellar. cvt between packed halves and two numbers, and cvt.pack: PTX ISA, "cvt" and "cvt.pack".

The first source goes to the upper half. Halves are converted to formats of 8 bits and fewer through
f32, which holds them exactly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.ptx.ir import Integer
from cudasync.ptx.types import ScalarType
from cudasync.softgpu.expansion.instructions.packed_arithmetic import PART_OF

if TYPE_CHECKING:
    from cudasync.ptx.ir import Instruction, Operand
    from cudasync.softgpu.expansion.rewriter import Parts, Rule

T = ScalarType
_HALVES = (T.F16X2, T.BF16X2)
# The types of cvt.pack, and its number of sources.
_PACKED = {
    *(((narrow, T.S32, T.B32), 3) for narrow in (T.U8, T.S8)),
    *(((narrow, T.S32), 2) for narrow in (T.U16, T.S16)),
}


def _convert(parts: Parts, instruction: Instruction) -> bool:
    if "pack" in instruction.modifiers:
        return _pack(parts, instruction)
    target, *sources = instruction.operands
    name = ".".join(("cvt", *instruction.modifiers))
    match instruction.types, len(sources):
        case ((T.F16X2 | T.BF16X2) as pair, T.F32), 2:
            part = PART_OF[pair]
            high, low = (
                parts.compute(f"{name}.{part.value}.f32", each, type_=T.B16) for each in sources
            )
            parts.join(target, low, high, part)
            return True
        case (small, T.F16X2), 1 if small not in _HALVES:
            low, high = (
                parts.compute("cvt.f32.f16", each) for each in parts.halves(sources[0], T.F16)
            )
            parts.settle(f"{name}.{small.value}.f32", target, high, low)
            return True
    return False


def _pack(parts: Parts, instruction: Instruction) -> bool:
    """Clamp two numbers to a narrow type and pack them below the low bits of a third source."""
    target, *sources = instruction.operands
    if (instruction.types, len(sources)) not in _PACKED or instruction.modifiers != ("pack", "sat"):
        return False
    narrow = instruction.types[0]
    bits = narrow.bits
    least, most = (
        (-1 << bits - 1, (1 << bits - 1) - 1) if narrow.is_signed else (0, (1 << bits) - 1)
    )
    high, low = (_narrowed(parts, each, least, most, (1 << bits) - 1) for each in sources[:2])
    word = parts.compute("or.b32", parts.compute("shl.b32", high, Integer(bits)), low)
    for above in sources[2:]:
        word = parts.compute("or.b32", word, parts.compute("shl.b32", above, Integer(2 * bits)))
    parts.write(target, word, T.B32)
    return True


def _narrowed(parts: Parts, number: Operand, least: int, most: int, mask: int) -> Operand:
    """The low bits of a number that is clamped to a range."""
    raised = parts.compute("max.s32", number, Integer(least))
    lowered = parts.compute("min.s32", raised, Integer(most))
    return parts.compute("and.b32", lowered, Integer(mask))


RULES: dict[str, Rule] = {"cvt": _convert}
