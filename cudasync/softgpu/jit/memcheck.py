"""Cellar, jit. Whether the lanes of an access lie where they may.

Every access knows its bounds, the lowest and highest byte of its active lanes. The fast path
compares them with the range that the same instruction last lay in; each instruction has its own
two words for that, because buffers would fight over shared ones. Only when that fails, every
lane is looked up by `@cudasync.check`, which reports what it finds or remembers the new range.

Generic addresses may also lie in the parameters, the block's shared window or its local slabs.
Shared and local accesses have one range that does not change: their window.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, unique
from typing import TYPE_CHECKING

from cudasync.softgpu.jit.faults import mask_word
from cudasync.softgpu.jit.shapes import Kind

if TYPE_CHECKING:
    from cudasync.softgpu.jit.bounds import Bounds
    from cudasync.softgpu.jit.groups import Group
    from cudasync.softgpu.jit.lowering import Lowering
    from cudasync.softgpu.jit.values import Value


@unique
class Where(IntEnum):
    """Which memory an access may touch; the number is an argument of `@cudasync.check`."""

    ALLOCATIONS = 0
    ANYWHERE = 1
    WINDOW = 2


@dataclass(frozen=True, slots=True)
class Window:
    """The range of an access: scalars of type i64."""

    start: str
    length: str


def within(lowering: Lowering, bounds: Bounds, window: Window) -> str:
    """An i1: regular and inside the window. Right for any addresses, wrapping ones too."""
    name = lowering.builder.name
    first = name(f"sub i64 {bounds.low}, {window.start}")
    behind = name(f"sub i64 {bounds.high}, {window.start}")
    is_first = name(f"icmp ult i64 {first}, {window.length}")
    is_last = name(f"icmp ule i64 {behind}, {window.length}")
    both = name(f"and i1 {is_first}, {is_last}")
    return name(f"and i1 {both}, {bounds.is_regular}")


def cached_window(lowering: Lowering) -> Window:
    """The range that this instruction last lay in; empty at first."""
    builder = lowering.builder
    start_place, length_place = cache_places(lowering)
    start = builder.name(f"load i64, ptr {start_place}")
    return Window(start, builder.name(f"load i64, ptr {length_place}"))


def cache_places(lowering: Lowering) -> tuple[str, str]:
    """Where start and length of an instruction's range are kept."""
    name = lowering.builder.name
    position = lowering.number()
    return (
        name(f"getelementptr i64, ptr %caches, i64 {2 * position}"),
        name(f"getelementptr i64, ptr %caches, i64 {2 * position + 1}"),
    )


def check(lowering: Lowering, address: Value, size: int, where: Where, window: Window) -> None:
    """Look up every active lane; control leaves through `fault` unless all are right."""
    cache, _ = cache_places(lowering)
    _look(
        lowering,
        address,
        f"@cudasync.check(ptr %job, ptr {cache}",
        f"i64 0, i64 {size}, i64 {lowering.number()}, i32 %warp, i32 {where.value},"
        f" i64 {window.start}, i64 {window.length}",
    )


def check_group(lowering: Lowering, address: Value, group: Group, window: Window) -> None:
    """The same for each of a group of accesses, in order; `address` is the leader's."""
    builder = lowering.builder
    table = "@" + builder.fresh(f"group.{lowering.number()}")
    rows = ", ".join(
        f"i64 {number}"
        for member in group.members
        for number in (member.offset, member.size, lowering.number(member.position))
    )
    count = len(group.members)
    builder.constants[table] = f"private constant [{3 * count} x i64] [{rows}]"
    cache, _ = cache_places(lowering)
    _look(
        lowering,
        address,
        f"@cudasync.check.group(ptr %job, ptr {cache}",
        f"ptr {table}, i64 {count}, i32 %warp, i64 {window.start}, i64 {window.length}",
    )


def _look(lowering: Lowering, address: Value, before: str, after: str) -> None:
    """Put the addresses into memory, and call a function that looks at them."""
    builder = lowering.builder
    word = mask_word(builder, lowering.mask)
    place, spacing = lay_out(lowering, address)
    is_right = builder.name(f"call i1 {before}, ptr {place}, i32 {spacing}, i32 {word}, {after})")
    go_on = builder.fresh("checked")
    builder.emit(f"br i1 {is_right}, label %{go_on}, label %fault")
    builder.label(go_on)


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
