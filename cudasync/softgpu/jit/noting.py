"""Cellar, jit. Calls that write down an access, where a module is compiled to be recorded.

Here only global memory is watched; of windows of the block `windows` sees to what is written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.softgpu.jit.job import Field, Where
from cudasync.softgpu.jit.masks import mask_word
from cudasync.softgpu.jit.memcheck import lay_out, next_lane
from cudasync.softgpu.jit.racing import note_access
from cudasync.softgpu.jit.windows import note_window
from cudasync.softgpu.recording import NOTE, NOTE_NAME, noted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cudasync.ptx import ir
    from cudasync.softgpu.jit.addresses import Place
    from cudasync.softgpu.jit.lowering import Lowering
    from cudasync.softgpu.jit.values import Value
    from cudasync.softgpu.recording import Touch

_LANES = f"""
define void @cudasync.note.lanes(ptr %job, ptr %addresses, i32 %spacing, i32 %mask, i64 %size,
    i8 %kind, i64 %line) {{
begin:
  %count.at = getelementptr i64, ptr %job, i64 {Field.RECORDING_COUNT.value}
  %count = load i64, ptr %count.at
  %is.off = icmp eq i64 %count, 0
  br i1 %is.off, label %done, label %entry
entry:
  %table.at = getelementptr i64, ptr %job, i64 {Field.RECORDING.value}
  %table.address = load i64, ptr %table.at
  %table = inttoptr i64 %table.address to ptr
{next_lane()}
  %entry.index = mul i32 %index, %spacing
  %address.at = getelementptr i64, ptr %addresses, i32 %entry.index
  %address = load i64, ptr %address.at
  call void @{NOTE_NAME}(ptr %table, i64 %count, i64 %address, i64 %size, i8 %kind, i64 %line)
  br label %next
done:
  ret void
}}
"""


def note(
    lowering: Lowering,
    instruction: ir.Instruction,
    where: Place,
    size: int,
    kind: Touch,
    values: Sequence[Value] = (),
) -> None:
    """Write down that each active lane does this to `size` bytes, if launches are recorded.

    `values` are what is stored, where that is known.
    """
    note_access(lowering, instruction, where, size, kind, values)
    note_window(lowering, instruction, where, size, kind)
    if not lowering.settings.record or where.where is Where.WINDOW:
        return
    builder = lowering.builder
    builder.functions[f"@{NOTE_NAME}"] = NOTE
    builder.functions["@cudasync.note.lanes"] = _LANES
    place, spacing = lay_out(lowering, where.address)
    word = mask_word(builder, lowering.mask)
    bits = noted(kind, instruction.opcode, instruction.modifiers)
    builder.emit(
        f"call void @cudasync.note.lanes(ptr %job, ptr {place}, i32 {spacing}, i32 {word},"
        f" i64 {size}, i8 {bits}, i64 {instruction.span.line})"
    )
