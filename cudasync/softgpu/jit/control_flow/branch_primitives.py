"""Cellar, jit. Branches on masks and on patience: small pieces of `control`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.softgpu.jit.kernel_abi.job_record import Field, read_field, write_field
from cudasync.softgpu.jit.vector_ir.lane_masks import mask_bits

if TYPE_CHECKING:
    from cudasync.softgpu.jit.analysis.suspension_points import Stop
    from cudasync.softgpu.jit.vector_ir.builder import Builder

# What a turn of a warp may spend on trips through loops that wait, before others get theirs: of
# those that get on meanwhile, and of those that only wait. Nobody else runs while this warp does.
PATIENCE = 1024
_IDLE_TRIP = 16


def branch_if_any(builder: Builder, mask: str, then: str, otherwise: str) -> None:
    """Go to `then` if the mask has a lane."""
    bits = mask_bits(builder, mask)
    some = builder.name(f"icmp ne i{builder.lanes} {bits}, 0")
    builder.emit(f"br i1 {some}, label %{then}, label %{otherwise}")


def branch_if_patient(builder: Builder, stop: Stop, then: str, otherwise: str) -> None:
    """Go to `then` unless this warp has had its turn; it got on, unless it is an idle loop."""
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
    """Lanes of the mask, if there are any, have seen what they waited for."""
    bits = mask_bits(builder, mask)
    some = builder.name(f"icmp ne i{builder.lanes} {bits}, 0")
    flag = builder.name(f"zext i1 {some} to i64")
    before = read_field(builder, Field.HAS_MOVED)
    write_field(builder, Field.HAS_MOVED, builder.name(f"or i64 {before}, {flag}"))
