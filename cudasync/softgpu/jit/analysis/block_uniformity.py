"""Cellar, jit. Decides whether all warps of a block always wait at the same barrier.

CUDA requires that the whole block reaches a barrier, or no thread of it. If the text shows that, a
segment need not test each warp's state (`parallel_regions`).

A register is *common* if it has the same value in every warp of a block. Its value must depend on
parameters and the block's position alone, and all warps must reach its definition. Warps diverge at
a branch on any other register, and reconverge where its sides have met; no barrier may lie between.
The fixpoint begins with every register common, and only removes registers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.ptx.ir import Address, Special, Symbol, Vector
from cudasync.ptx.liveness import defs, uses
from cudasync.ptx.types import StateSpace
from cudasync.softgpu.jit.analysis.divergence import PARTING

if TYPE_CHECKING:
    from collections.abc import Collection

    from cudasync.ptx.ir import Instruction, Operand
    from cudasync.softgpu.jit.analysis.reconvergence_order import Flow

# Instructions with results that depend on their operands alone.
_PURE = frozenset(
    {
        "mov", "add", "sub", "mul", "mul24", "mad", "mad24", "div", "rem", "neg", "abs", "min",
        "max", "and", "or", "xor", "not", "shl", "shr", "shf", "setp", "selp", "cvt", "cvta",
        "bfe", "bfi", "lop3", "popc", "clz", "prmt",
    }
)  # fmt: skip
_COMMON_SPECIALS = ("%ntid", "%ctaid", "%nctaid")


def is_together(flow: Flow, barriers: Collection[int]) -> bool:
    """Whether every warp of a block reaches the same barriers; `barriers` are positions."""
    body = flow.function.body
    if not flow.is_reducible or any(each.opcode == "call" for each in body):
        return False
    own: set[str] = set()
    while True:
        apart = _apart(flow, own)
        before = len(own)
        for node in flow.nodes:
            for each in body[node.start : node.end]:
                if node.index in apart or not _is_common(each, own):
                    own.update(register.name for register in defs(each))
        if len(own) == before:
            break
    ends = {node.end - 1: node.index for node in flow.nodes}
    return not any(
        ends[position] in apart or _decides(body[position], own) for position in barriers
    )


def _apart(flow: Flow, own: set[str]) -> set[int]:
    """The nodes that only some warps may reach, or some more often than others."""
    apart: set[int] = set()
    for node in flow.nodes:
        last = flow.last(node.index)
        if last.opcode in PARTING and _decides(last, own):
            for each in node.successors:
                apart |= flow.reach(each, flow.post_dominators[node.index])
    return apart


def _decides(instruction: Instruction, own: set[str]) -> bool:
    """Whether warps may diverge here: the guard or the index is not common."""
    return any(register.name in own for register in uses(instruction))


def _is_common(instruction: Instruction, own: set[str]) -> bool:
    if any(register.name in own for register in uses(instruction)):
        return False
    if instruction.opcode == "ld" and instruction.space is StateSpace.PARAM:
        place = instruction.operands[1]
        return isinstance(place, Address) and isinstance(place.base, Symbol)
    return instruction.opcode in _PURE and not any(map(_is_own, instruction.operands))


def _is_own(operand: Operand) -> bool:
    """Whether this is a special register that differs from warp to warp, or contains one."""
    if isinstance(operand, Vector):
        return any(map(_is_own, operand.elements))
    return isinstance(operand, Special) and not operand.name.startswith(_COMMON_SPECIALS)
