"""Cellar. Special registers with the same value in every launch, or with that of another register.

A launch has no clusters, so each block is a cluster of its own (PTX ISA). Performance counters and
environment registers read as zero, as they may under a driver.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from cudasync.ptx.ir import Integer, Special
from cudasync.ptx.specials import SPECIALS

if TYPE_CHECKING:
    from cudasync.ptx.ir import Instruction, Operand
    from cudasync.softgpu.expansion.rewriter import Parts

_AXES = "xyzw"
_ZERO = (
    *(f"%pm{number}{kind}" for number in range(8) for kind in ("", "_64")),
    # 1 and 2 lead to the barrier of a cooperative grid.
    *(f"%envreg{number}" for number in range(32) if number not in (1, 2)),
    *(f"%cluster_ctaid.{axis}" for axis in _AXES),
    "%cluster_ctarank", "%current_graph_exec", "%is_explicit_cluster",
)  # fmt: skip
_ONE = (*(f"%cluster_nctaid.{axis}" for axis in _AXES), "%cluster_nctarank")
_OTHERS = {
    **{f"%clusterid.{axis}": f"%ctaid.{axis}" for axis in _AXES},
    **{f"%nclusterid.{axis}": f"%nctaid.{axis}" for axis in _AXES},
}
_MEANINGS: dict[str, Operand] = {
    **dict.fromkeys(_ZERO, Integer(0)),
    **dict.fromkeys(_ONE, Integer(1)),
    **{name: SPECIALS[other] for name, other in _OTHERS.items()},
}


def rewrite(parts: Parts, instruction: Instruction) -> bool:
    """Replace such a register by its value."""
    named = [each.name for each in instruction.operands if isinstance(each, Special)]
    if not any(name in _MEANINGS for name in named):
        return False
    operands = tuple(
        _MEANINGS.get(each.name, each) if isinstance(each, Special) else each
        for each in instruction.operands
    )
    parts.replace(replace(instruction, operands=operands))
    return True
