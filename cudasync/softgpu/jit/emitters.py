"""Cellar, jit. Every instruction that can be lowered, by opcode: the tables of the families."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.softgpu.jit import (
    atomics,
    bits,
    calls,
    comparing,
    converting,
    copies,
    floating,
    integer,
    matching,
    matrices,
    mbarriers,
    memory,
    moving,
    permuting,
    products,
    synchronising,
    tiles,
    transcendental,
    warp,
)

if TYPE_CHECKING:
    from cudasync.softgpu.jit.lowering import Emitter

EMITTERS: dict[str, Emitter] = {
    **integer.EMITTERS,
    **bits.EMITTERS,
    **floating.EMITTERS,
    **comparing.EMITTERS,
    **converting.EMITTERS,
    **moving.EMITTERS,
    **memory.EMITTERS,
    **atomics.EMITTERS,
    **synchronising.EMITTERS,
    **calls.EMITTERS,
    **transcendental.EMITTERS,
    **warp.EMITTERS,
    **matching.EMITTERS,
    **permuting.EMITTERS,
    **products.EMITTERS,
    **matrices.EMITTERS,
    **tiles.EMITTERS,
    **copies.EMITTERS,
    **mbarriers.EMITTERS,
}
