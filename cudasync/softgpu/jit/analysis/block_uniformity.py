"""Cellar, jit. Whether all warps of a block always wait at the same barrier.

CUDA wants a barrier where the whole block comes or none of it. Where that can be seen from the
text, a segment need not ask of each warp whether it is the one that is waited at (`segments`).

A register is *common* if every warp of a block has the same value in it: what is computed from
parameters and the place of the block alone, and not where only some warps come. Warps part at a
branch on anything else, and are together again where its sides have met; no barrier may lie
between. It is a fixpoint that begins with every register common and only ever takes back.
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

# Instructions whose result depends on their operands alone.
_PURE = frozenset(
    {
        "mov", "add", "sub", "mul", "mul24", "mad", "mad24", "div", "rem", "neg", "abs", "min",
        "max", "and", "or", "xor", "not", "shl", "shr", "shf", "setp", "selp", "cvt", "cvta",
        "bfe", "bfi", "lop3", "popc", "clz", "prmt",
    }
)  # fmt: skip
_COMMON_SPECIALS = ("%ntid", "%ctaid", "%nctaid")


def is_together(flow: Flow, barriers: Collection[int]) -> bool:
    """Whether every warp of a block comes to the same barriers; `barriers` are positions."""
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
    """The nodes that only some warps may come to, or more often than others."""
    apart: set[int] = set()
    for node in flow.nodes:
        last = flow.last(node.index)
        if last.opcode in PARTING and _decides(last, own):
            for each in node.successors:
                apart |= flow.reach(each, flow.post_dominators[node.index])
    return apart


def _decides(instruction: Instruction, own: set[str]) -> bool:
    """Whether warps may do something else here: its guard, or its index, is not common."""
    return any(register.name in own for register in uses(instruction))


def _is_common(instruction: Instruction, own: set[str]) -> bool:
    if any(register.name in own for register in uses(instruction)):
        return False
    if instruction.opcode == "ld" and instruction.space is StateSpace.PARAM:
        place = instruction.operands[1]
        return isinstance(place, Address) and isinstance(place.base, Symbol)
    return instruction.opcode in _PURE and not any(map(_is_own, instruction.operands))


def _is_own(operand: Operand) -> bool:
    """Whether this is a special register that differs from warp to warp."""
    if isinstance(operand, Vector):
        return any(map(_is_own, operand.elements))
    return isinstance(operand, Special) and not operand.name.startswith(_COMMON_SPECIALS)
