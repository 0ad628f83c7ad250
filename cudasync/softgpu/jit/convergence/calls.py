"""Cellar, jit. Calls that report lanes at barriers, at warp-wide instructions, and at their end.

Code compiled for the convergence check contains the calls. They do nothing unless the check is on:
otherwise the state of a slot is 0. There is no call where the text shows that all lanes arrive.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.ptx.ir import Integer
from cudasync.ptx.types import ScalarType
from cudasync.softgpu.interface.convergence_records import has_members, meeting
from cudasync.softgpu.jit.addressing.memcheck import lay_out
from cudasync.softgpu.jit.analysis.block_uniformity import is_together
from cudasync.softgpu.jit.convergence.barriers import ARRIVE_NAME, LEAVE_NAME, STOP_NAME
from cudasync.softgpu.jit.convergence.functions import DECLARATIONS, FUNCTIONS, UNDEFINED_NAME
from cudasync.softgpu.jit.convergence.meetings import MEET_NAME
from cudasync.softgpu.jit.kernel_abi.barrier_operands import number_and_count
from cudasync.softgpu.jit.vector_ir.lane_masks import mask_word

if TYPE_CHECKING:
    from cudasync.ptx import ir
    from cudasync.softgpu.jit.analysis.reconvergence_order import Flow
    from cudasync.softgpu.jit.vector_ir.builder import Builder
    from cudasync.softgpu.jit.vector_ir.lowering_context import Lowering

_WHO = "ptr %job, i32 %ctaid.x, i32 %ctaid.y, i32 %ctaid.z, i32 %warp"
_EVERYBODY = 0xFFFFFFFF
# The calls that show, in a kernel's text, that the check may have something to report.
TELLING = tuple(f"call void {name}" for name in (MEET_NAME, ARRIVE_NAME, UNDEFINED_NAME))


def parts_at_barriers(flow: Flow, barriers: set[int]) -> bool:
    """Whether some threads of a block may reach a barrier that others do not reach."""
    return bool(barriers) and not is_together(flow, barriers)


def names_everybody(instruction: ir.Instruction) -> bool:
    """Whether the instruction's mask is a constant with all lanes."""
    masks = instruction.operands[-1]
    return isinstance(masks, Integer) and masks.value & _EVERYBODY == _EVERYBODY


def note_meeting(lowering: Lowering, instruction: ir.Instruction) -> None:
    """Note that active lanes meet the lanes in the instruction's last operand."""
    builder = lowering.builder
    if not lowering.settings.convergence or builder.is_silent or not has_members(instruction):
        return
    if lowering.has_everybody and names_everybody(instruction):
        return
    masks = lowering.read(instruction.operands[-1], ScalarType.U32)
    wide = builder.extend(builder.flat(masks), "i64", is_signed=False)
    place, spacing = lay_out(lowering, wide)
    _call(
        builder,
        MEET_NAME,
        mask_word(builder, lowering.mask),
        f"ptr {place}, i32 {spacing}, i64 {instruction.span.line}, i64 {meeting(instruction)}",
    )


def note_arrival(lowering: Lowering, instruction: ir.Instruction) -> None:
    """Note that all lanes of the mask arrive at a barrier, unless it has a count of its own."""
    if not lowering.tells_ends:
        return
    number, count = number_and_count(lowering, instruction)
    if count.literal == 0:
        name = ARRIVE_NAME if lowering.tells_arrivals else STOP_NAME
        word = mask_word(lowering.builder, lowering.mask)
        line = instruction.span.line
        wide = lowering.builder.extend(number, "i64", is_signed=False)
        _call(lowering.builder, name, word, f"i64 {line}, i64 {wide.text}")


def note_end(lowering: Lowering, mask: str) -> None:
    """Note that lanes reach the end of the kernel."""
    if lowering.tells_ends:
        _call(lowering.builder, LEAVE_NAME, mask_word(lowering.builder, mask))


def _call(builder: Builder, name: str, word: str, *more: str) -> None:
    builder.functions.update(FUNCTIONS)
    builder.declarations.update(DECLARATIONS)
    arguments = ", ".join((_WHO, f"i32 {word}", *more))
    builder.emit(f"call void {name}({arguments})")
