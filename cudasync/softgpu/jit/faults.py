"""Cellar, jit. How compiled code reports that it cannot go on.

The report goes into the job, then control leaves through the label `fault`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cudasync.softgpu.jit.builder import Builder
    from cudasync.softgpu.jit.job import FaultCode


def mask_bits(builder: Builder, mask: str) -> str:
    """A mask as an integer of as many bits as there are lanes."""
    return builder.name(f"bitcast {builder.vector_type('i1')} {mask} to i{builder.lanes}")


def mask_word(builder: Builder, mask: str) -> str:
    """A mask as an i32."""
    bits = mask_bits(builder, mask)
    return bits if builder.lanes == 32 else builder.name(f"zext i{builder.lanes} {bits} to i32")


def emit_fault(builder: Builder, code: FaultCode, position: int, mask: str) -> None:
    """Report `code` for the lanes of `mask` and leave; no text may follow without a label."""
    word = mask_word(builder, mask)
    builder.emit(
        f"call void @cudasync.report(ptr %job, i64 {code.value}, i64 {position}, i32 {word}, i64 0)"
    )
    builder.emit("br label %fault")
