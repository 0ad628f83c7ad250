"""Cellar, jit. Calls that tell who comes to a barrier, to a meeting of lanes, and to the end.

They are in the text of what is compiled for a check of convergence, and do nothing where nobody
asks: the state of a slot is then 0. Where the text shows that all come there is no call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.ptx.ir import Integer
from cudasync.ptx.types import ScalarType
from cudasync.softgpu.interface.convergence_records import has_members, meeting
from cudasync.softgpu.jit.addressing.memcheck import lay_out
from cudasync.softgpu.jit.analysis.block_uniformity import is_together
from cudasync.softgpu.jit.convergence.functions import (
    ARRIVE_NAME,
    DECLARATIONS,
    FUNCTIONS,
    LEAVE_NAME,
    MEET_NAME,
    STOP_NAME,
    UNDEFINED_NAME,
)
from cudasync.softgpu.jit.kernel_abi.barrier_operands import number_and_count
from cudasync.softgpu.jit.vector_ir.lane_masks import mask_word

if TYPE_CHECKING:
    from cudasync.ptx import ir
    from cudasync.softgpu.jit.analysis.reconvergence_order import Flow
    from cudasync.softgpu.jit.vector_ir.builder import Builder
    from cudasync.softgpu.jit.vector_ir.lowering_context import Lowering

_WHO = "ptr %job, i32 %ctaid.x, i32 %ctaid.y, i32 %ctaid.z, i32 %warp"
_EVERYBODY = 0xFFFFFFFF
# What of this in a kernel's text there is something to be told of.
TELLING = tuple(f"call void {name}" for name in (MEET_NAME, ARRIVE_NAME, UNDEFINED_NAME))


def parts_at_barriers(flow: Flow, barriers: set[int]) -> bool:
    """Whether some threads of a block may come to a barrier that others do not come to."""
    return bool(barriers) and not is_together(flow, barriers)


def names_everybody(instruction: ir.Instruction) -> bool:
    """Whether its mask is that of all lanes, by the text."""
    masks = instruction.operands[-1]
    return isinstance(masks, Integer) and masks.value & _EVERYBODY == _EVERYBODY


def note_meeting(lowering: Lowering, instruction: ir.Instruction) -> None:
    """Active lanes meet those that their last operand names."""
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
    """All lanes of the mask come to a barrier; those with a count are not for the whole block."""
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
    """Lanes come to the end of the kernel."""
    if lowering.tells_ends:
        _call(lowering.builder, LEAVE_NAME, mask_word(lowering.builder, mask))


def _call(builder: Builder, name: str, word: str, *more: str) -> None:
    builder.functions.update(FUNCTIONS)
    builder.declarations.update(DECLARATIONS)
    arguments = ", ".join((_WHO, f"i32 {word}", *more))
    builder.emit(f"call void {name}({arguments})")
