"""Cellar, jit. Prefetches memory for runs of lanes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.softgpu.jit.vector_ir.values import integer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cudasync.softgpu.jit.vector_ir.lowering_context import Lowering

# The size of a cache line, in bytes.
LINE = 64


def fetch_ahead(lowering: Lowering, start: str, length: int) -> None:
    """Prefetch the memory that this warp needs in the loop's next trip, if that is known.

    Otherwise, in kernels with barriers between warps, prefetch the memory behind this run: the next
    warp's, or the next block's. Such kernels work on tiles, which no processor predicts.
    """
    builder = lowering.builder
    stride = lowering.strides.get(lowering.position)
    if stride is not None:
        # It is needed soon, and nowhere else: it goes to the first-level cache.
        ahead, first, near = _moved(lowering, start, stride), 0, 3
    elif lowering.has_tiles:
        ahead, first, near = start, max(LINE, length), 2
    else:
        return
    builder.declarations.add("declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")
    for offset in range(first, first + max(LINE, length), LINE):
        line = builder.name(f"getelementptr i8, ptr {ahead}, i64 {offset}")
        builder.emit(f"call void @llvm.prefetch.p0(ptr {line}, i32 0, i32 {near}, i32 1)")


def _moved(lowering: Lowering, start: str, stride: Mapping[str, int]) -> str:
    """A pointer advanced by `stride`; terms that are not uniform are left out."""
    builder = lowering.builder
    for name, factor in stride.items():
        step = str(factor)
        if name:
            value = lowering.load_register(lowering.function.registers[name])
            if not value.is_uniform:
                continue
            wide = builder.extend(value, "i64", is_signed=True)
            step = builder.multiply(wide, integer("i64", factor)).text
        start = builder.name(f"getelementptr i8, ptr {start}, i64 {step}")
    return start
