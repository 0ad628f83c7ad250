"""Cellar, jit. Whether the lanes of an access lie where they may.

Every access knows its bounds, the lowest and highest byte of its active lanes. The fast path
compares them with the range that the same instruction last lay in; each instruction has its own
two words for that, because buffers would fight over shared ones. Only when that fails, every
lane is looked up by `@cudasync.check`, which reports what it finds or remembers the new range.

Generic addresses may also lie in the parameters, the block's shared window or its local slabs.
Shared and local accesses have one range that does not change: their window.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.softgpu.jit.masks import mask_word
from cudasync.softgpu.jit.rows import row
from cudasync.softgpu.jit.shapes import Kind

if TYPE_CHECKING:
    from cudasync.softgpu.jit.bounds import Bounds
    from cudasync.softgpu.jit.groups import Group
    from cudasync.softgpu.jit.job import Where
    from cudasync.softgpu.jit.lowering import Lowering
    from cudasync.softgpu.jit.rows import Window
    from cudasync.softgpu.jit.values import Value


def within(lowering: Lowering, bounds: Bounds, window: Window | None) -> str:
    """An i1: regular and inside the window. Right for any addresses, wrapping ones too."""
    name = lowering.builder.name
    start, length = range_of(lowering, window)
    first = name(f"sub i64 {bounds.low}, {start}")
    behind = name(f"sub i64 {bounds.high}, {start}")
    is_first = name(f"icmp ult i64 {first}, {length}")
    is_last = name(f"icmp ule i64 {behind}, {length}")
    both = name(f"and i1 {is_first}, {is_last}")
    return name(f"and i1 {both}, {bounds.is_regular}")


def range_of(lowering: Lowering, window: Window | None) -> tuple[str, str]:
    """Start and length of a window; of none, those of the range that the instruction last lay in,
    which is empty at first."""
    if window is not None:
        return window.start_text, window.length_text
    builder = lowering.builder
    start_place, length_place = cache_places(lowering)
    start = builder.name(f"load i64, ptr {start_place}")
    return start, builder.name(f"load i64, ptr {length_place}")


def cache_places(lowering: Lowering) -> tuple[str, str]:
    """Where start and length of an instruction's range are kept."""
    name = lowering.builder.name
    position = lowering.number()
    return (
        name(f"getelementptr i64, ptr %caches, i64 {2 * position}"),
        name(f"getelementptr i64, ptr %caches, i64 {2 * position + 1}"),
    )


def check(
    lowering: Lowering,
    address: Value,
    size: int,
    where: Where,
    window: Window | None,
    group: Group | None = None,
) -> None:
    """Look up every active lane; control leaves through `fault` unless all are right.

    Of a group, each of its accesses, in order; `address` is the leader's.
    """
    builder = lowering.builder
    own = lowering.number()
    members = [(0, size, own)]
    if group is not None:
        members = [(m.offset, m.size, lowering.number(m.position)) for m in group.members]
    words = row(builder, own, where, window, address.shape, members)
    mask = mask_word(builder, lowering.mask)
    place = lay_out_crooked(lowering, address)
    if place is not None:
        call = f"@cudasync.check(ptr %job, ptr {words}, ptr {place}, i32 {mask})"
    else:
        line = line_arguments(address)
        call = f"@cudasync.check.line(ptr %job, ptr {words}, {line}, i32 {mask})"
    is_right = builder.name(f"call i1 {call}")
    go_on = builder.fresh("checked")
    builder.emit(f"br i1 {is_right}, label %{go_on}, label %fault")
    builder.label(go_on)


def line_arguments(address: Value) -> str:
    """Base and index of an address whose lanes lie in line, as arguments."""
    index = address.index if address.shape.kind is Kind.WIDE else "0"
    return f"i64 {address.text}, i32 {index}"


def lay_out_crooked(lowering: Lowering, address: Value) -> str | None:
    """The addresses of all lanes in memory, where they do not lie in line."""
    shape = address.shape
    if shape.is_varying or (shape.kind is Kind.WIDE and not shape.stride):
        return lay_out(lowering, address)[0]
    return None


def lay_out(lowering: Lowering, address: Value) -> tuple[str, int]:
    """The addresses of all lanes in memory, and how many words apart: 0 where all are one."""
    builder = lowering.builder
    if address.is_uniform:
        place = builder.allocate("i64")
        builder.emit(f"store i64 {address.text}, ptr {place}")
        return place, 0
    if address.shape.kind is Kind.WIDE:
        return _spread(lowering, address), 1
    vector = builder.vector_type("i64")
    place = builder.allocate(vector)
    builder.emit(f"store {vector} {builder.vector(address)}, ptr {place}, align 64")
    return place, 1


def next_lane(last: str = "lane") -> str:
    """Text after `entry`: a loop over the lanes of %mask, at %index, up to block `last`."""
    return f"""\
  br label %next
next:
  %left = phi i32 [%mask, %entry], [%rest, %{last}]
  %is.over = icmp eq i32 %left, 0
  br i1 %is.over, label %done, label %lane
lane:
  %index = call i32 @llvm.cttz.i32(i32 %left, i1 true)
  %lowered = sub i32 %left, 1
  %rest = and i32 %left, %lowered"""


def _spread(lowering: Lowering, address: Value) -> str:
    """The addresses of a WIDE value in memory, by a function: they are seldom needed."""
    builder = lowering.builder
    lanes, sign = builder.lanes, "s" if address.shape.is_signed else "u"
    narrow, wide = builder.vector_type("i32"), builder.vector_type("i64")
    indices, place = builder.allocate(narrow), builder.allocate(wide)
    name = f"@cudasync.spread.v{lanes}.{sign}"
    extend = "sext" if address.shape.is_signed else "zext"
    builder.functions[name] = f"""
define void {name}(ptr %indices, i64 %base, i64 %scale, ptr %place) {{
  %narrow = load {narrow}, ptr %indices
  %wide = {extend} {narrow} %narrow to {wide}
  %scale.one = insertelement {wide} poison, i64 %scale, i32 0
  %scales = shufflevector {wide} %scale.one, {wide} poison, <{lanes} x i32> zeroinitializer
  %base.one = insertelement {wide} poison, i64 %base, i32 0
  %bases = shufflevector {wide} %base.one, {wide} poison, <{lanes} x i32> zeroinitializer
  %scaled = mul {wide} %wide, %scales
  %all = add {wide} %scaled, %bases
  store {wide} %all, ptr %place
  ret void
}}
"""
    index = builder.vector(builder.wide_index(address))
    builder.emit(f"store {narrow} {index}, ptr {indices}")
    builder.emit(
        f"call void {name}(ptr {indices}, i64 {address.text}, i64 {address.shape.scale},"
        f" ptr {place})"
    )
    return place
