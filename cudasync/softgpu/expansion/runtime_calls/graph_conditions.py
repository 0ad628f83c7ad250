"""Cellar. cudaGraphSetConditional of device code: it becomes a store.

The handle of a condition is the address of its word, so a checked access checks the handle, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cudasync.ptx.ir import Address, Register, Symbol, Vector
from cudasync.softgpu.semantics.memory_visibility import callee

if TYPE_CHECKING:
    from collections.abc import Container

    from cudasync.ptx.ir import Instruction, Operand
    from cudasync.softgpu.expansion.rewriter import Parts

SETS_CONDITION: Final = "cudaGraphSetConditional"


def rewrite(parts: Parts, instruction: Instruction, defined: Container[str]) -> bool:
    """Take apart a call of cudaGraphSetConditional, unless the module defines the function."""
    if callee(instruction) != SETS_CONDITION or SETS_CONDITION in defined:
        return False
    arguments = instruction.operands[2]
    assert isinstance(arguments, Vector)
    if len(arguments.elements) != 2:
        return False
    handle, value = arguments.elements
    place = _value(parts, handle, "u64")
    parts.settle("st.global.u32", Address(place), _value(parts, value, "u32"))
    return True


def _value(parts: Parts, operand: Operand, type_: str) -> Register:
    if isinstance(operand, Symbol):
        return parts.compute(f"ld.param.{type_}", Address(operand))
    return parts.compute(f"mov.{type_}", operand)
