"""Cellar. Instructions that only advise the caches: they do nothing here.

A policy is created as a number that nothing reads. discard may leave any contents in the memory
that it names, for instance the old ones.
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
