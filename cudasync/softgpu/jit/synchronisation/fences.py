"""Cellar, jit. Fences, warp barriers, sleep and trap.

Barriers of a block are control flow: `branch_lowering` lowers a barrier at the end of a node. Code
from here does not wait: the lanes of a warp are together already.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.softgpu.jit.checks.race_calls import note_barrier, note_fence, note_warp_barrier
from cudasync.softgpu.jit.convergence.calls import note_meeting
from cudasync.softgpu.jit.kernel_abi.fault_exit import emit_fault
from cudasync.softgpu.jit.kernel_abi.job_record import FaultCode
from cudasync.softgpu.jit.synchronisation import named_barriers

if TYPE_CHECKING:
    from cudasync.ptx import ir
    from cudasync.softgpu.jit.vector_ir.lowering_context import Emitter, Lowering


def _fence(lowering: Lowering, instruction: ir.Instruction) -> None:
    note_fence(lowering, instruction)
    lowering.builder.emit("fence seq_cst")


def _barrier(lowering: Lowering, instruction: ir.Instruction) -> None:
    if "warp" in instruction.modifiers:
        note_meeting(lowering, instruction)
        note_warp_barrier(lowering, instruction)
        return
    if "arrive" in instruction.modifiers:
        named_barriers.emit_arrive(lowering, instruction)
        note_barrier(lowering, instruction, lowering.mask)
    elif "sync" in instruction.modifiers or "red" in instruction.modifiers:
        named_barriers.probe_result(lowering, instruction)
    else:
        lowering.refuse(instruction)


def _sleep(lowering: Lowering, _instruction: ir.Instruction) -> None:
    """End the warp's turn at the next back edge."""
    if lowering.has_patience:
        lowering.builder.emit("store i32 0, ptr %patience")


def _trap(lowering: Lowering, _instruction: ir.Instruction) -> None:
    builder = lowering.builder
    emit_fault(builder, FaultCode.TRAP, lowering.number(), lowering.mask)
    builder.label(builder.fresh("behind"))


EMITTERS: dict[str, Emitter] = {
    "membar": _fence,
    "fence": _fence,
    "bar": _barrier,
    "barrier": _barrier,
    "nanosleep": _sleep,
    "trap": _trap,
    "brkpt": _trap,
}
