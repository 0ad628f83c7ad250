"""Cellar, jit. The emitter of every opcode: the tables of all families together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.softgpu.jit.arithmetic import (
    bitwise,
    byte_permute,
    comparison,
    conversion,
    dot_product,
    floating_point,
    integer,
    transcendental,
)
from cudasync.softgpu.jit.control_flow import calls
from cudasync.softgpu.jit.matrix import ldmatrix, matrix_multiply
from cudasync.softgpu.jit.memory import load_store, moves
from cudasync.softgpu.jit.synchronisation import (
    async_copies,
    atomics,
    fences,
    mbarriers,
    shuffle,
    votes_and_reductions,
    warp_match,
)

if TYPE_CHECKING:
    from cudasync.softgpu.jit.vector_ir.lowering_context import Emitter

EMITTERS: dict[str, Emitter] = {
    **integer.EMITTERS,
    **bitwise.EMITTERS,
    **floating_point.EMITTERS,
    **comparison.EMITTERS,
    **conversion.EMITTERS,
    **moves.EMITTERS,
    **load_store.EMITTERS,
    **atomics.EMITTERS,
    **fences.EMITTERS,
    **calls.EMITTERS,
    **transcendental.EMITTERS,
    **shuffle.EMITTERS,
    **votes_and_reductions.EMITTERS,
    **warp_match.EMITTERS,
    **byte_permute.EMITTERS,
    **dot_product.EMITTERS,
    **matrix_multiply.EMITTERS,
    **ldmatrix.EMITTERS,
    **async_copies.EMITTERS,
    **mbarriers.EMITTERS,
}
