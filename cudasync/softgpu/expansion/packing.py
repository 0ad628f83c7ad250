"""Cellar. cvt between packed halves and two numbers: PTX ISA, "cvt".

The first source goes to the upper half. To formats of 8 bits and fewer, halves go by way of f32,
which holds them exactly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.ptx.types import ScalarType
from cudasync.softgpu.expansion.pairs import PART_OF

if TYPE_CHECKING:
    from cudasync.ptx.ir import Instruction
    from cudasync.softgpu.expansion.parts import Parts, Rule

T = ScalarType
_HALVES = (T.F16X2, T.BF16X2)


def _convert(parts: Parts, instruction: Instruction) -> bool:
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


RULES: dict[str, Rule] = {"cvt": _convert}
