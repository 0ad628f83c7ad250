"""Cellar, jit. Reports from compiled code that it cannot go on.

The report goes into the job; then control leaves through the label `fault`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.softgpu.jit.vector_ir.lane_masks import mask_word

if TYPE_CHECKING:
    from cudasync.softgpu.jit.kernel_abi.job_record import FaultCode
    from cudasync.softgpu.jit.vector_ir.builder import Builder


def emit_fault(builder: Builder, code: FaultCode, position: int, mask: str) -> None:
    """Report `code` for the lanes of `mask` and leave; a label must follow."""
    word = mask_word(builder, mask)
    builder.emit(
        f"call void @cudasync.report(ptr %job, i64 {code.value}, i64 {position}, i32 {word}, i64 0)"
    )
    builder.emit("br label %fault")
