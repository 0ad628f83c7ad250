"""Cellar, jit. Finds the properties of a kernel that decide how it is launched."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.ptx.ir import Special
from cudasync.ptx.liveness import defs, uses
from cudasync.softgpu.jit.analysis.streaming_stores import find_nontemporal
from cudasync.softgpu.jit.kernel_abi.kernel_text import Traits
from cudasync.softgpu.jit.kernel_abi.special_registers import NEEDS_WHOLE_WARPS
from cudasync.softgpu.semantics.memory_visibility import ATOMICS

if TYPE_CHECKING:
    from cudasync.softgpu.jit.transforms.program import Program


def find_traits(program: Program) -> Traits:
    return Traits(_needs_whole_warps(program), _is_order_free(program), find_nontemporal(program))


def _needs_whole_warps(program: Program) -> bool:
    """Whether the kernel can observe the width of a warp."""
    return any(
        instruction.opcode in _COLLECTIVE
        or any(
            isinstance(each, Special) and each.name in NEEDS_WHOLE_WARPS
            for each in instruction.operands
        )
        for instruction in program.instructions
    )


_COLLECTIVE = frozenset(
    {
        "shfl", "vote", "match", "redux", "activemask", "elect",
        "mma", "wmma", "ldmatrix", "stmatrix", "movmatrix",
    }
)  # fmt: skip


def _is_order_free(program: Program) -> bool:
    """Whether atomics leave the same memory in any order of blocks.

    They do if the program does not use their results, and if they are neither float sums nor
    exchanges.
    """
    wanted = {register.name for each in program.instructions for register in uses(each)}
    return not any(
        any(register.name in wanted for register in defs(each))
        or each.type.is_float
        or not _ORDERED.isdisjoint(each.modifiers)
        for each in program.instructions
        if each.opcode in ATOMICS
    )


_ORDERED = frozenset({"exch", "cas", "inc", "dec"})
