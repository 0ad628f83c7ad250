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

from cudasync.softgpu.jit.faults import mask_bits, mask_word
from cudasync.softgpu.jit.shapes import Kind
from cudasync.softgpu.jit.values import Value, uniform

if TYPE_CHECKING:
    from cudasync.softgpu.jit.lowering import Lowering


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


@dataclass(frozen=True, slots=True)
class Bounds:
    """Of an access: first byte, byte behind the last, and whether all lanes are aligned (i1)."""

    low: str
    high: str
    is_aligned: str


def within(lowering: Lowering, bounds: Bounds, window: Window) -> str:
    """An i1: aligned and inside the window. Right for any addresses, wrapping ones too."""
    name = lowering.builder.name
    first = name(f"sub i64 {bounds.low}, {window.start}")
    behind = name(f"sub i64 {bounds.high}, {window.start}")
    is_first = name(f"icmp ult i64 {first}, {window.length}")
    is_last = name(f"icmp ule i64 {behind}, {window.length}")
    both = name(f"and i1 {is_first}, {is_last}")
    return name(f"and i1 {both}, {bounds.is_aligned}")


def bounds(lowering: Lowering, address: Value, size: int, *, whole: bool) -> Bounds:
    """The bounds of `size` bytes at `address` in every lane; `whole` takes all lanes as active."""
    builder = lowering.builder
    shape = address.shape
    if address.is_uniform:
        return Bounds(
            address.text,
            _plus(lowering, address.text, size),
            _aligned(lowering, address.text, size),
        )
    if shape.kind is Kind.AFFINE and shape.stride % size == 0:
        low, high = _affine_ends(lowering, address.text, shape.stride, whole=whole)
        return Bounds(low, _plus(lowering, high, size), _aligned(lowering, address.text, size))
    if shape.kind is Kind.WIDE:
        return _wide_bounds(lowering, address, size, whole=whole)
    vector = builder.vector(address)
    low, high = _ends(lowering, vector, "i64", is_signed=False, whole=whole)
    return Bounds(
        low, _plus(lowering, high, size), _all_aligned(lowering, vector, "i64", size, whole=whole)
    )


def _wide_bounds(lowering: Lowering, address: Value, size: int, *, whole: bool) -> Bounds:
    builder = lowering.builder
    shape = address.shape
    how = "sext" if shape.is_signed else "zext"
    vector = builder.vector(builder.wide_index(address))
    low, high = _ends(lowering, vector, "i32", is_signed=shape.is_signed, whole=whole)
    ends = []
    for index in (low, high) if shape.scale > 0 else (high, low):
        extended = builder.name(f"{how} i32 {index} to i64")
        scaled = builder.name(f"mul i64 {extended}, {shape.scale}")
        ends.append(builder.name(f"add i64 {scaled}, {address.text}"))
    if shape.scale % size == 0:
        is_aligned = _aligned(lowering, address.text, size)
    else:
        # Low bits of base + scale * index do not depend on how the index was extended.
        narrow = builder.truncate(uniform("i64", address.text), "i32")
        bits = builder.vector_type("i32")
        scaled = builder.name(f"mul {bits} {vector}, splat (i32 {shape.scale})")
        total = builder.name(f"add {bits} {scaled}, {builder.splat('i32', narrow.text)}")
        is_aligned = _all_aligned(lowering, total, "i32", size, whole=whole)
    return Bounds(ends[0], _plus(lowering, ends[1], size), is_aligned)


def _affine_ends(lowering: Lowering, base: str, stride: int, *, whole: bool) -> tuple[str, str]:
    """The addresses of the lowest and highest lane that is active."""
    builder = lowering.builder
    lanes = builder.lanes
    if whole:
        far = builder.name(f"add i64 {base}, {(lanes - 1) * stride}")
        return (base, far) if stride > 0 else (far, base)
    bits = mask_bits(builder, lowering.mask)
    ends = []
    for intrinsic in ("cttz", "ctlz"):
        builder.declarations.add(f"declare i{lanes} @llvm.{intrinsic}.i{lanes}(i{lanes}, i1)")
        count = builder.name(f"call i{lanes} @llvm.{intrinsic}.i{lanes}(i{lanes} {bits}, i1 false)")
        lane = builder.name(f"zext i{lanes} {count} to i64")
        if intrinsic == "ctlz":
            lane = builder.name(f"sub i64 {lanes - 1}, {lane}")
        offset = builder.name(f"mul i64 {lane}, {stride}")
        ends.append(builder.name(f"add i64 {base}, {offset}"))
    return (ends[0], ends[1]) if stride > 0 else (ends[1], ends[0])


def _ends(
    lowering: Lowering, vector: str, type_: str, *, is_signed: bool, whole: bool
) -> tuple[str, str]:
    """The least and greatest of the active lanes."""
    builder = lowering.builder
    bits = int(type_[1:])
    extremes = ((1 << (bits - 1)) - 1, -(1 << (bits - 1))) if is_signed else (-1, 0)
    sign = "s" if is_signed else "u"
    found = []
    for operation, idle in zip((f"{sign}min", f"{sign}max"), extremes, strict=True):
        lanes = vector
        if not whole:
            typed = builder.vector_type(type_)
            flags = f"{builder.vector_type('i1')} {lowering.mask}"
            lanes = builder.name(
                f"select {flags}, {typed} {vector}, {typed} splat ({type_} {idle})"
            )
        full = f"@llvm.vector.reduce.{operation}.v{builder.lanes}{type_}"
        typed = builder.vector_type(type_)
        builder.declarations.add(f"declare {type_} {full}({typed})")
        found.append(builder.name(f"call {type_} {full}({typed} {lanes})"))
    return found[0], found[1]


def _all_aligned(lowering: Lowering, vector: str, type_: str, size: int, *, whole: bool) -> str:
    builder = lowering.builder
    if size == 1:
        return "true"
    typed = builder.vector_type(type_)
    if not whole:
        flags = f"{builder.vector_type('i1')} {lowering.mask}"
        vector = builder.name(f"select {flags}, {typed} {vector}, {typed} zeroinitializer")
    full = f"@llvm.vector.reduce.or.v{builder.lanes}{type_}"
    builder.declarations.add(f"declare {type_} {full}({typed})")
    together = builder.name(f"call {type_} {full}({typed} {vector})")
    low_bits = builder.name(f"and {type_} {together}, {size - 1}")
    return builder.name(f"icmp eq {type_} {low_bits}, 0")


def _aligned(lowering: Lowering, address: str, size: int) -> str:
    if size == 1:
        return "true"
    builder = lowering.builder
    return builder.name(f"icmp eq i64 {builder.name(f'and i64 {address}, {size - 1}')}, 0")


def _plus(lowering: Lowering, address: str, size: int) -> str:
    return lowering.builder.name(f"add i64 {address}, {size}")


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
    builder = lowering.builder
    word = mask_word(builder, lowering.mask)
    step = 1
    if address.is_uniform:
        place, step = builder.allocate("i64"), 0
        builder.emit(f"store i64 {address.text}, ptr {place}")
    elif address.shape.kind is Kind.WIDE:
        place = _spread(lowering, address)
    else:
        vector = builder.vector_type("i64")
        place = builder.allocate(vector)
        builder.emit(f"store {vector} {builder.vector(address)}, ptr {place}, align 64")
    cache, _ = cache_places(lowering)
    is_right = builder.name(
        f"call i1 @cudasync.check(ptr %job, ptr {cache}, ptr {place}, i32 {step}, i32 {word},"
        f" i64 {size}, i64 {lowering.number()}, i32 %warp, i32 {where.value},"
        f" i64 {window.start}, i64 {window.length})"
    )
    go_on = builder.fresh("checked")
    builder.emit(f"br i1 {is_right}, label %{go_on}, label %fault")
    builder.label(go_on)


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
