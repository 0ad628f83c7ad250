"""Cellar, jit. The loop over blocks of kernels that consist of `parallel_regions`.

One function serves all such kernels; its arguments hold the differences. Two are the tables of
segments and of their rows of numbers (`function_merging`). The others are the length of a row, the
segments that only keep step (a bit for each), and the cost of a warp.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.softgpu.jit.block_loop.block_loop import (
    POISONING,
    begin_blocks,
    end_blocks,
    poison_shared,
)
from cudasync.softgpu.jit.block_loop.parallel_regions import PARITY
from cudasync.softgpu.jit.vector_ir.builder import Builder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cudasync.softgpu.jit.block_loop.parallel_regions import Segment

_NAME = "@cudasync.rounds"
_PARAMETERS = "ptr %job, ptr %segments, ptr %rows, i64 %width, i64 %paces, i64 %cost"


def rounds_call(segments: Sequence[Segment], width: int, cost: int) -> str:
    """The call that runs the blocks of a kernel, with the tables that `function_merging` makes."""
    paces = sum(1 << each.code for each in segments if each.pace is not None)
    tables = "ptr @segments, ptr @numbers"
    return f"call i32 {_NAME}(ptr %job, {tables}, i64 {width}, i64 {paces}, i64 {cost})"


def _text() -> str:
    # The text contains no vector, so the number of lanes does not matter.
    builder = Builder(32)
    begin_blocks(builder, "block.fresh")
    poison_shared(builder)
    builder.emit("br label %rounds")
    _emit_rounds(builder)
    end_blocks(builder, "%cost")
    lines = "\n".join(builder.lines)
    return f"define i32 {_NAME}({_PARAMETERS}) nounwind {{\n{lines}\n}}\n"


def _emit_rounds(builder: Builder) -> None:
    """The rounds of one block, from `rounds` to `block.done` or `failed`.

    A barrier opens when no warp that only keeps step is left.
    """
    emit, label = builder.emit, builder.label
    label("rounds")
    emit("br label %round.next")
    label("round.next")
    emit("%waited = phi i64 [1, %rounds], [%came, %round.done]")
    emit("%now = phi i32 [0, %rounds], [%then, %round.done]")
    emit("%pacing = and i64 %waited, %paces")
    emit("%is.open = icmp eq i64 %pacing, 0")
    emit("%runs = select i1 %is.open, i64 %waited, i64 %pacing")
    emit("%stay = xor i64 %waited, %runs")
    emit(f"%other = xor i32 %now, {PARITY}")
    emit("%then = select i1 %is.open, i32 %other, i32 %now")
    emit("br label %segments.next")
    label("segments.next")
    emit("%left = phi i64 [%runs, %round.next], [%rest, %segment.went]")
    emit("%came.before = phi i64 [%stay, %round.next], [%came, %segment.went]")
    emit("%code = call i64 @llvm.cttz.i64(i64 %left, i1 true)")
    emit("%less = sub i64 %left, 1")
    emit("%rest = and i64 %left, %less")
    emit("%segment.at = getelementptr ptr, ptr %segments, i64 %code")
    emit("%segment = load ptr, ptr %segment.at")
    emit("%row = mul i64 %code, %width")
    emit("%numbers = getelementptr i64, ptr %rows, i64 %row")
    emit(
        "%came.here = call i64 %segment(ptr %job, i32 %now, i32 %then, i32 %ctaid.x,"
        " i32 %ctaid.y, i32 %ctaid.z, ptr %numbers)"
    )
    emit("%came = or i64 %came.before, %came.here")
    emit("%is.bad = icmp slt i64 %came.here, 0")
    emit("br i1 %is.bad, label %failed, label %segment.went")
    label("segment.went")
    emit("%is.round.over = icmp eq i64 %rest, 0")
    emit("br i1 %is.round.over, label %round.done, label %segments.next")
    label("round.done")
    emit("%is.block.over = icmp eq i64 %came, 0")
    emit("br i1 %is.block.over, label %block.done, label %round.next")


ROUNDS = {_NAME: _text(), **POISONING}
