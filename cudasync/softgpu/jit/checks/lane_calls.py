"""Cellar, jit. Calls of the functions of a `Marking`, by the shape of an access's address."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.softgpu.jit.addressing.address_bounds import straightened
from cudasync.softgpu.jit.addressing.memcheck import lay_out
from cudasync.softgpu.jit.checks.mark_functions import DECLARATIONS
from cudasync.softgpu.jit.vector_ir.lane_masks import mask_word
from cudasync.softgpu.jit.vector_ir.uniformity import Kind

if TYPE_CHECKING:
    from cudasync.softgpu.jit.checks.mark_functions import Marking
    from cudasync.softgpu.jit.vector_ir.lowering_context import Lowering
    from cudasync.softgpu.jit.vector_ir.values import Value


def mark_lanes(
    lowering: Lowering, marking: Marking, arguments: str, address: Value, line: int
) -> None:
    """Let each active lane mark its access at `address`. `arguments` precede the address."""
    builder, name = lowering.builder, marking.name
    builder.functions |= marking.functions()
    builder.declarations |= {*DECLARATIONS, *_intrinsics(marking)}
    word = mask_word(builder, lowering.mask)
    rest = f"i32 {word}, i64 {line}"
    shape = address.shape
    if address.is_uniform:
        builder.emit(f"call void {name}.one({arguments}, i64 {address.text}, {rest})")
        return
    if shape.kind is Kind.AFFINE and shape.stride == marking.size:
        builder.emit(f"call void {name}.line({arguments}, i64 {address.text}, {rest})")
        return
    if shape.kind is Kind.WIDE and shape.stride * shape.scale == marking.size:
        start, is_straight = straightened(lowering, address)
        line_up, apart, behind = (builder.fresh(each) for each in ("line", "apart", "marked"))
        builder.emit(f"br i1 {is_straight}, label %{line_up}, label %{apart}, !prof !1")
        builder.label(line_up)
        builder.emit(f"call void {name}.line({arguments}, i64 {start.text}, {rest})")
        builder.go(behind)
        builder.label(apart)
        place, _ = lay_out(lowering, address)
        builder.emit(f"call void {name}.each({arguments}, ptr {place}, {rest})")
        builder.go(behind)
        builder.label(behind)
        return
    place, _ = lay_out(lowering, address)
    builder.emit(f"call void {name}.each({arguments}, ptr {place}, {rest})")


def _intrinsics(marking: Marking) -> list[str]:
    """The declarations of intrinsics whose types depend on the access."""
    lanes, bits = marking.lanes, 8 * marking.width
    each, flags = f"<{lanes} x i{bits}>", f"<{lanes} x i1>"
    of, pointers = f"v{lanes}i{bits}", f"<{lanes} x ptr>"
    words = marking.width * lanes // 8
    found = [
        f"declare <{words} x i64> @llvm.ctpop.v{words}i64(<{words} x i64>)",
        f"declare i64 @llvm.vector.reduce.add.v{words}i64(<{words} x i64>)",
        f"declare i{bits} @llvm.ctpop.i{bits}(i{bits})",
    ]
    if marking.width in (1, 2, 4, 8):
        # Narrow marks are gathered as 32 bits.
        wide = f"v{lanes}i32.v{lanes}p0({pointers}, {flags}, <{lanes} x i32>)"
        found += [
            f"declare <{lanes} x i32> @llvm.masked.gather.{wide}",
            f"declare {each} @llvm.masked.load.{of}.p0(ptr, {flags}, {each})",
            f"declare void @llvm.masked.store.{of}.p0({each}, ptr, {flags})",
            f"declare {each} @llvm.masked.gather.{of}.v{lanes}p0({pointers}, {flags}, {each})",
            f"declare void @llvm.masked.scatter.{of}.v{lanes}p0({each}, {pointers}, {flags})",
            f"declare {each} @llvm.ctpop.{of}({each})",
            f"declare i64 @llvm.vector.reduce.add.v{lanes}i64(<{lanes} x i64>)",
        ]
    return found
