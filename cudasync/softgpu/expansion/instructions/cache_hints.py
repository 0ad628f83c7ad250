"""Cellar. Instructions that only advise the caches: nothing happens.

A policy that is made is a number nobody looks at. discard may leave anything in the memory it
names, for instance what was there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.ptx.ir import Integer
from cudasync.ptx.types import ScalarType

if TYPE_CHECKING:
    from cudasync.ptx.ir import Instruction
    from cudasync.softgpu.expansion.rewriter import Parts, Rule

_KNOWN = {
    "applypriority": {"global", "L2::evict_normal"},
    "discard": {"global", "L2"},
}


def _nothing(_parts: Parts, instruction: Instruction) -> bool:
    return _KNOWN[instruction.opcode].issuperset(instruction.modifiers)


def _policy(parts: Parts, instruction: Instruction) -> bool:
    parts.write(instruction.operands[0], Integer(0), ScalarType.B64)
    return True


RULES: dict[str, Rule] = {**dict.fromkeys(_KNOWN, _nothing), "createpolicy": _policy}
