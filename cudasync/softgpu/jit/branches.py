"""Cellar, jit. Branches on masks, on patience and on the budget: small pieces of `control`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.softgpu.jit.faults import emit_fault, mask_bits
from cudasync.softgpu.jit.job import FaultCode

if TYPE_CHECKING:
    from cudasync.softgpu.jit.builder import Builder

# Trips through a loop that waits for memory before others get a turn.
PATIENCE = 4096


def branch_if_any(builder: Builder, mask: str, then: str, otherwise: str) -> None:
    """Go to `then` if the mask has a lane."""
    bits = mask_bits(builder, mask)
    some = builder.name(f"icmp ne i{builder.lanes} {bits}, 0")
    builder.emit(f"br i1 {some}, label %{then}, label %{otherwise}")


def branch_if_patient(builder: Builder, then: str, otherwise: str) -> None:
    """Go to `then` unless this warp has had its turn."""
    before = builder.name("load i32, ptr %patience")
    after = builder.name(f"sub i32 {before}, 1")
    builder.emit(f"store i32 {after}, ptr %patience")
    is_patient = builder.name(f"icmp sgt i32 {after}, 0")
    builder.emit(f"br i1 {is_patient}, label %{then}, label %{otherwise}")


def spend(builder: Builder, position: int, mask: str, then: str) -> None:
    """Take one back edge off the budget; with none left the launch has timed out."""
    before = builder.name("load i64, ptr %fuel")
    after = builder.name(f"sub i64 {before}, 1")
    builder.emit(f"store i64 {after}, ptr %fuel")
    is_spent = builder.name(f"icmp slt i64 {after}, 0")
    spent = builder.fresh("spent")
    builder.emit(f"br i1 {is_spent}, label %{spent}, label %{then}, !prof !1")
    builder.label(spent)
    emit_fault(builder, FaultCode.TIMEOUT, position, mask)
