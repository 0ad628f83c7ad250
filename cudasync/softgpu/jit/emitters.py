"""Cellar, jit. Every instruction that can be lowered, by opcode: the tables of the families."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.softgpu.jit import (
    atomics,
    bits,
    comparing,
    converting,
    floating,
    integer,
    memory,
    moving,
    special,
    synchronising,
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
    **transcendental.EMITTERS,
    **warp.EMITTERS,
}
NEEDS_WHOLE_WARPS = special.NEEDS_WHOLE_WARPS
