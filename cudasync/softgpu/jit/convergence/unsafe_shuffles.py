"""Cellar, jit. Finds shuffles that may read from a lane which gives no value."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.softgpu.jit.convergence.calls import names_everybody

if TYPE_CHECKING:
    from cudasync.ptx.ir import Instruction
    from cudasync.softgpu.jit.analysis.divergence import Divergence
    from cudasync.softgpu.jit.analysis.reconvergence_order import Flow
    from cudasync.softgpu.jit.vector_ir.lowering_context import Lowering


def unsafe_shuffles(lowering: Lowering, flow: Flow, divergence: Divergence) -> list[Instruction]:
    """The shuffles that may read from a lane which has ended, or is not in the block or mask."""
    return [
        each
        for node in flow.nodes
        for each in flow.function.body[node.start : node.end]
        if each.opcode == "shfl"
        and not (
            lowering.is_kernel
            and lowering.variant.is_whole
            and node.index not in divergence.divergent
            and each.guard is None
            and names_everybody(each)
        )
    ]
