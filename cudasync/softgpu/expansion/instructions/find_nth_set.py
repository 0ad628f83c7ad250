"""Cellar. fns: the position of the n-th set bit of a word, counted up or down from a place.

PTX ISA, "fns". The code halves the word: if the lower half of the rest has too few bits, it
subtracts them and goes on with the upper half. Counting down is counting up in the reversed word.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.ptx.ir import Integer
from cudasync.ptx.types import ScalarType

if TYPE_CHECKING:
    from cudasync.ptx.ir import Instruction
    from cudasync.softgpu.expansion.rewriter import Parts, Rule

T = ScalarType


def _find(parts: Parts, instruction: Instruction) -> bool:
    if instruction.types != (T.B32,) or instruction.modifiers:
        return False
    target, mask, base, offset = instruction.operands
    make = parts.compute
    is_down = make("setp.lt.s32", offset, Integer(0), type_=T.PRED)
    word = make("selp.b32", make("brev.b32", mask), mask, is_down)
    start = make("selp.b32", make("sub.s32", Integer(31), base), base, is_down)
    # With offset 0 only the bit at the place itself counts.
    is_here = make("setp.eq.s32", offset, Integer(0), type_=T.PRED)
    onward = make("shl.b32", Integer(-1), start)
    here = make("shl.b32", Integer(1), start)
    left = make("and.b32", word, make("selp.b32", here, onward, is_here))
    wanted = make("selp.b32", Integer(1), make("abs.s32", offset), is_here)
    rank = make("sub.s32", wanted, Integer(1))
    total = make("popc.b32", left)
    is_found = make("setp.lt.u32", rank, total, type_=T.PRED)
    place = make("mov.b32", Integer(0))
    for width in (16, 8, 4, 2, 1):
        low = make("popc.b32", make("and.b32", left, Integer((1 << width) - 1)))
        is_above = make("setp.ge.u32", rank, low, type_=T.PRED)
        rank = make("selp.b32", make("sub.s32", rank, low), rank, is_above)
        left = make("selp.b32", make("shr.u32", left, Integer(width)), left, is_above)
        place = make("selp.b32", make("add.s32", place, Integer(width)), place, is_above)
    place = make("selp.b32", make("sub.s32", Integer(31), place), place, is_down)
    parts.settle("selp.b32", target, place, Integer(-1), is_found)
    return True


RULES: dict[str, Rule] = {"fns": _find}
