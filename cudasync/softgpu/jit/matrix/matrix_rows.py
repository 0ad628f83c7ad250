"""Cellar, jit. Moves lines of a matrix, each named by a lane, to and from memory at once.

A line is a row of eight halves. It is checked, and recorded if launches are recorded, as an access
of the lane that names it, which must be active.
Between memory and lanes, lines lie in stack memory, one behind the other.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from cudasync.softgpu.interface.access_recording import Touch
from cudasync.softgpu.jit.addressing.memcheck import lay_out, next_lane
from cudasync.softgpu.jit.checks.recording_calls import note
from cudasync.softgpu.jit.matrix.fragment_memory import stack_memory
from cudasync.softgpu.jit.memory.coalescing import Access
from cudasync.softgpu.jit.vector_ir.lane_masks import mask_word, narrow_mask
from cudasync.softgpu.jit.vector_ir.values import integer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cudasync.ptx import ir
    from cudasync.softgpu.jit.addressing.address_spaces import Place
    from cudasync.softgpu.jit.vector_ir.builder import Builder
    from cudasync.softgpu.jit.vector_ir.lowering_context import Lowering
    from cudasync.softgpu.jit.vector_ir.values import Value


@contextmanager
def within_mask(lowering: Lowering, flags: str) -> Iterator[None]:
    """Emit code for the active lanes among `flags`, a vector of i1."""
    mask, is_full = lowering.mask, lowering.is_mask_full
    builder = lowering.builder
    lowering.mask = narrow_mask(builder, mask, flags)
    lowering.is_mask_full = False
    try:
        yield
    finally:
        lowering.mask, lowering.is_mask_full = mask, is_full


@contextmanager
def first_lanes(lowering: Lowering, count: int) -> Iterator[None]:
    """Emit code for the active lanes among the first `count`."""
    lanes = lowering.builder.lanes
    if count >= lanes:
        yield
        return
    flags = ", ".join(f"i1 {'true' if lane < count else 'false'}" for lane in range(lanes))
    with within_mask(lowering, f"<{flags}>"):
        yield


def load_lines(
    lowering: Lowering,
    instruction: ir.Instruction,
    where: Place,
    size: int,
    alignment: int,
) -> str:
    """Load the lines of the active lanes; return their address on the stack. Others are zero."""
    builder = lowering.builder
    _check(lowering, where, size, alignment)
    note(lowering, instruction, where, size, Touch.READ)
    memory = stack_memory(lowering, "lines")
    if not lowering.is_mask_full:
        builder.declarations.add("declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)")
        length = builder.lanes * size
        builder.emit(
            f"call void @llvm.memset.p0.i64(ptr align 64 {memory}, i8 0, i64 {length}, i1 false)"
        )
    _move(lowering, "load", where, size, memory)
    return memory


def store_lines(
    lowering: Lowering,
    instruction: ir.Instruction,
    where: Place,
    size: int,
    alignment: int,
    memory: str,
) -> None:
    """Store lines from the stack to the places that the active lanes name."""
    _check(lowering, where, size, alignment)
    note(lowering, instruction, where, size, Touch.WRITTEN)
    _move(lowering, "store", where, size, memory)


def _check(lowering: Lowering, where: Place, size: int, alignment: int) -> None:
    """Check the first and the last element of each line.

    That is enough, because the gap between two allocations is longer than a line.
    """
    if not lowering.settings.memcheck or where.checked is None:
        return
    far = moved(lowering, where, size - alignment)
    for each in (where, far) if size > alignment else (where,):
        Access(lowering, each, alignment, 1).check_lanes()


def moved(lowering: Lowering, where: Place, distance: int) -> Place:
    """A place `distance` bytes further on."""
    return moved_by(lowering, where, integer("i64", distance))


def moved_by(lowering: Lowering, where: Place, distance: Value) -> Place:
    """A place further on by `distance`, an i64."""
    builder = lowering.builder
    address = builder.add(where.address, distance)
    checked = where.checked
    if checked is where.address:
        checked = address
    elif checked is not None:
        checked = builder.add(checked, distance)
    return replace(where, address=address, checked=checked)


def _move(lowering: Lowering, what: str, where: Place, size: int, memory: str) -> None:
    builder = lowering.builder
    addresses, spacing = lay_out(lowering, where.address)
    word = mask_word(builder, lowering.mask)
    function = _function(builder, what, size)
    builder.emit(f"call void {function}(ptr {addresses}, i32 {spacing}, i32 {word}, ptr {memory})")


def _function(builder: Builder, what: str, size: int) -> str:
    """The function that moves a line of `size` bytes for each lane of a mask."""
    name = f"@cudasync.lines.{what}.{size}"
    target, source = ("%line", "%there") if what == "load" else ("%there", "%line")
    builder.declarations.add("declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)")
    builder.functions[name] = f"""
define void {name}(ptr %addresses, i32 %spacing, i32 %mask, ptr %lines) {{
entry:
{next_lane()}
  %place = mul i32 %index, %spacing
  %address.at = getelementptr i64, ptr %addresses, i32 %place
  %address = load i64, ptr %address.at
  %there = inttoptr i64 %address to ptr
  %offset = mul i32 %index, {size}
  %line = getelementptr i8, ptr %lines, i32 %offset
  call void @llvm.memcpy.p0.p0.i64(ptr {target}, ptr {source}, i64 {size}, i1 false)
  br label %next
done:
  ret void
}}
"""
    return name
