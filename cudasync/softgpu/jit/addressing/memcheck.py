"""Cellar, jit. Memcheck: tests that the lanes of an access lie in valid memory.

Every access knows its bounds, the lowest and highest byte of its active lanes. The fast path
compares them with the last range of the same instruction. Each instruction has its own words for
that (`access_descriptors.Cache`), because different buffers would evict each other from shared
words. Only if the fast path fails, `@cudasync.check` looks up every lane, and reports a fault or
caches the new range. If the number of bytes from the lowest to the highest is known, the cache
holds the room for the lowest byte. Then one comparison is enough, including alignment.

Generic addresses may also lie in the parameters, the block's shared window or its local slabs.
Shared and local accesses have one range that does not change: their window.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.softgpu.jit.addressing.address_bounds import ends
from cudasync.softgpu.jit.kernel_abi.access_descriptors import Cache, row
from cudasync.softgpu.jit.vector_ir.lane_masks import mask_word
from cudasync.softgpu.jit.vector_ir.uniformity import Kind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cudasync.softgpu.jit.addressing.address_bounds import Bounds, Reach
    from cudasync.softgpu.jit.addressing.memcheck_combining import Group
    from cudasync.softgpu.jit.kernel_abi.access_descriptors import Window
    from cudasync.softgpu.jit.kernel_abi.job_record import Where
    from cudasync.softgpu.jit.vector_ir.lowering_context import Lowering
    from cudasync.softgpu.jit.vector_ir.values import Value


def within(lowering: Lowering, bounds: Bounds, window: Window | None) -> str:
    """An i1: regular and inside the window. Correct for any addresses, even if they wrap."""
    name = lowering.builder.name
    if bounds.reach is not None and has_room_for(lowering, window, bounds.reach):
        is_inside = _within_room(lowering, bounds.low, bounds.reach, window)
    else:
        high, is_aligned = ends(lowering, bounds)
        if window is not None:
            start, length = window.start_text, window.length_text
        else:
            start, length = _kept(lowering, Cache.START), _kept(lowering, Cache.LENGTH)
        first = name(f"sub i64 {bounds.low}, {start}")
        behind = name(f"sub i64 {high}, {start}")
        is_first = name(f"icmp ult i64 {first}, {length}")
        is_last = name(f"icmp ule i64 {behind}, {length}")
        is_inside = name(f"and i1 {is_first}, {is_last}")
        if is_aligned != "true":
            is_inside = name(f"and i1 {is_inside}, {is_aligned}")
    if bounds.is_regular == "true":
        return is_inside
    return name(f"and i1 {is_inside}, {bounds.is_regular}")


def has_room_for(lowering: Lowering, window: Window | None, reach: Reach) -> bool:
    """Whether the cache holds the room for this reach. An instruction has one word for room, so
    the cache serves the first reach that is requested."""
    return window is not None or lowering.reaches.setdefault(lowering.number(), reach) == reach


def _within_room(lowering: Lowering, low: str, reach: Reach, window: Window | None) -> str:
    """An i1: aligned, and all bytes inside, by one comparison.

    A rotation moves the bits that alignment forbids to the top, where they exceed any room.
    """
    builder = lowering.builder
    if window is not None:
        start, room = window.start_text, _room(lowering, window, reach)
    else:
        start, room = _kept(lowering, Cache.BASE), _kept(lowering, Cache.ROOM)
    distance = builder.name(f"sub i64 {low}, {start}")
    if reach.shift:
        builder.declarations.add("declare i64 @llvm.fshr.i64(i64, i64, i64)")
        both = f"i64 {distance}, i64 {distance}"
        distance = builder.name(f"call i64 @llvm.fshr.i64({both}, i64 {reach.shift})")
    return builder.name(f"icmp ult i64 {distance}, {room}")


def _room(lowering: Lowering, window: Window, reach: Reach) -> str:
    """The number of places in a window where a reach may begin."""
    length = window.length_text
    if type(window.length) is int:
        return str(-(-max(0, (window.length % 2**64) - reach.size + 1) // reach.alignment))
    builder = lowering.builder
    builder.declarations.add("declare i64 @llvm.usub.sat.i64(i64, i64)")
    more = builder.name(f"call i64 @llvm.usub.sat.i64(i64 {length}, i64 {reach.size - 1})")
    if not reach.shift:
        return more
    rounded = builder.name(f"add i64 {more}, {reach.alignment - 1}")
    return builder.name(f"lshr i64 {rounded}, {reach.shift}")


def _kept(lowering: Lowering, word: Cache) -> str:
    """A cached word of the current instruction."""
    name = lowering.builder.name
    place = len(Cache) * lowering.number() + word
    return name(f"load i64, ptr {name(f'getelementptr i64, ptr %caches, i64 {place}')}")


def check(
    lowering: Lowering,
    address: Value,
    size: int,
    where: Where,
    window: Window | None,
    group: Group | None = None,
) -> None:
    """Look up every active lane; control leaves through `fault` unless all are valid.

    For a group, look up each of its accesses in order; `address` is the leader's.
    """
    builder = lowering.builder
    own = lowering.number()
    members = [(0, size, own)]
    if group is not None:
        members = [(m.offset, m.size, lowering.number(m.position)) for m in group.members]
    words = own_row(lowering, where, window, address, members)
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


def own_row(
    lowering: Lowering,
    where: int,
    window: Window | None,
    address: Value,
    members: Sequence[tuple[int, int, int]],
) -> str:
    """The row for an access of the current instruction, with the reach of its cached room."""
    own = lowering.number()
    reach = lowering.reaches.get(own)
    return row(lowering.builder, own, where, window, address.shape, members, reach)


def line_arguments(address: Value) -> str:
    """Base and index of an address with a constant stride between lanes, as arguments."""
    index = address.index if address.shape.kind is Kind.WIDE else "0"
    return f"i64 {address.text}, i32 {index}"


def lay_out_crooked(lowering: Lowering, address: Value) -> str | None:
    """The addresses of all lanes in memory, if they have no constant stride; else None."""
    shape = address.shape
    if shape.is_varying or (shape.kind is Kind.WIDE and not shape.stride):
        return lay_out(lowering, address)[0]
    return None


def lay_out(lowering: Lowering, address: Value) -> tuple[str, int]:
    """The addresses of all lanes in memory, and their distance in words: 0 if all are equal."""
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
    """The addresses of a WIDE value in memory, computed by a function: they are seldom needed."""
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
