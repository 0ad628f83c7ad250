"""Cellar. isspacep.const: whether an address lies in one of the module's constants.

Constants lie in memory like other variables, each by itself: no window holds all of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.ptx.ir import Integer, Symbol
from cudasync.ptx.types import ScalarType, StateSpace

if TYPE_CHECKING:
    from cudasync.ptx.ir import Instruction, Module
    from cudasync.softgpu.expansion.rewriter import Parts

T = ScalarType


def rewrite(parts: Parts, instruction: Instruction, module: Module) -> bool:
    """Compare the address with the range of each constant."""
    if instruction.opcode != "isspacep" or instruction.modifiers != ("const",):
        return False
    target, address = instruction.operands
    found = parts.compute("mov.pred", Integer(0))
    for variable in module.variables:
        if variable.space is StateSpace.CONST:
            start = parts.compute("mov.u64", Symbol(variable.name))
            offset = parts.compute("sub.u64", address, start)
            size = Integer(variable.size)
            inside = parts.compute("setp.lt.u64", offset, size, type_=T.PRED)
            found = parts.compute("or.pred", found, inside)
    parts.write(target, found, T.PRED)
    return True
