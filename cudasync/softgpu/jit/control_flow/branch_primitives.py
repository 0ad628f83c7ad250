"""Cellar, jit. Branches on masks and on patience: small helpers of `masked_execution`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.softgpu.jit.kernel_abi.job_record import Field, read_field, write_field
from cudasync.softgpu.jit.vector_ir.lane_masks import mask_bits

if TYPE_CHECKING:
    from cudasync.softgpu.jit.analysis.suspension_points import Stop
    from cudasync.softgpu.jit.vector_ir.builder import Builder

# The budget of one turn of a warp for trips through waiting loops, and the price of a trip through
# an idle loop. A trip through any other loop costs 1. Nothing else runs while this warp does.
PATIENCE = 1024
_IDLE_TRIP = 16


def branch_if_any(builder: Builder, mask: str, then: str, otherwise: str) -> None:
    """Go to `then` if the mask has a lane."""
    bits = mask_bits(builder, mask)
    some = builder.name(f"icmp ne i{builder.lanes} {bits}, 0")
    builder.emit(f"br i1 {some}, label %{then}, label %{otherwise}")


def branch_if_patient(builder: Builder, stop: Stop, then: str, otherwise: str) -> None:
    """Go to `then` while this warp has patience; at the end, a loop that is not idle has moved."""
    before = builder.name("load i32, ptr %patience")
    after = builder.name(f"sub i32 {before}, {_IDLE_TRIP if stop.is_idle else 1}")
    builder.emit(f"store i32 {after}, ptr %patience")
    is_patient = builder.name(f"icmp sgt i32 {after}, 0")
    if stop.is_idle:
        builder.emit(f"br i1 {is_patient}, label %{then}, label %{otherwise}")
        return
    gets_on = builder.fresh("gets.on")
    builder.emit(f"br i1 {is_patient}, label %{then}, label %{gets_on}")
    builder.label(gets_on)
    write_field(builder, Field.HAS_MOVED, "1")
    builder.emit(f"br label %{otherwise}")


def note_leaving(builder: Builder, mask: str) -> None:
    """Note that lanes of the mask, if there are any, have seen the awaited value."""
    bits = mask_bits(builder, mask)
    some = builder.name(f"icmp ne i{builder.lanes} {bits}, 0")
    flag = builder.name(f"zext i1 {some} to i64")
    before = read_field(builder, Field.HAS_MOVED)
    write_field(builder, Field.HAS_MOVED, builder.name(f"or i64 {before}, {flag}"))
