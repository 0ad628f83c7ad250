"""Cellar, jit. The lowest and highest byte that the active lanes of an access touch."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from cudasync.softgpu.jit.vector_ir.lane_masks import mask_bits
from cudasync.softgpu.jit.vector_ir.uniformity import Kind, affine
from cudasync.softgpu.jit.vector_ir.values import Value, uniform

if TYPE_CHECKING:
    from cudasync.softgpu.jit.vector_ir.lowering_context import Lowering


@dataclass(frozen=True, slots=True)
class Span:
    """The bytes `low` to `high` (excluded), relative to an address with this alignment."""

    low: int
    high: int
    alignment: int


@dataclass(frozen=True, slots=True)
class Reach:
    """`size` bytes from an address with this alignment, a power of two."""

    size: int
    alignment: int

    @property
    def shift(self) -> int:
        return self.alignment.bit_length() - 1


@dataclass(frozen=True, slots=True)
class Bounds:
    """First byte, byte behind the last, and whether every lane is regular (i1).

    A lane is regular if it is aligned, and if its index does not wrap where that was assumed. If
    the number of bytes from `low` on is known, `reach` holds it: then `high` is empty, and
    alignment has not been tested yet.
    """

    low: str
    high: str
    is_regular: str
    reach: Reach | None = None


def bounds(lowering: Lowering, address: Value, span: Span, *, whole: bool) -> Bounds:
    """The bounds of `span` at `address` in every lane; `whole` treats all lanes as active."""
    shape = address.shape
    stride = shape.stride if shape.kind is Kind.AFFINE else 0
    is_line = address.is_uniform or (whole and shape.kind is Kind.AFFINE)
    if is_line and stride % span.alignment == span.low % span.alignment == 0:
        last = (lowering.builder.lanes - 1) * stride
        low = _plus(lowering, address.text, span.low + min(0, last))
        return Bounds(low, "", "true", Reach(span.high - span.low + abs(last), span.alignment))
    if address.is_uniform:
        low = high = address.text
        is_regular = _aligned(lowering, low, span.alignment)
    elif shape.kind is Kind.AFFINE and shape.stride % span.alignment == 0:
        low, high = _affine_ends(lowering, address.text, shape.stride, whole=whole)
        is_regular = _aligned(lowering, address.text, span.alignment)
    elif shape.kind is Kind.WIDE and shape.stride:
        line, is_straight = straightened(lowering, address)
        found = bounds(lowering, line, span, whole=whole)
        if found.is_regular != "true":
            is_straight = lowering.builder.name(f"and i1 {found.is_regular}, {is_straight}")
        return replace(found, is_regular=is_straight)
    elif shape.kind is Kind.WIDE:
        low, high, is_regular = _wide_ends(lowering, address, span, whole=whole)
    else:
        vector = lowering.builder.vector(address)
        low, high = _ends(lowering, vector, "i64", is_signed=False, whole=whole)
        is_regular = _all_aligned(lowering, vector, "i64", span, whole=whole)
    return Bounds(_plus(lowering, low, span.low), _plus(lowering, high, span.high), is_regular)


def ends(lowering: Lowering, bounds: Bounds) -> tuple[str, str]:
    """The end of any bounds, and an i1 for their alignment if it has not been tested yet."""
    reach = bounds.reach
    if reach is None:
        return bounds.high, "true"
    is_aligned = _aligned(lowering, bounds.low, reach.alignment)
    return _plus(lowering, bounds.low, reach.size), is_aligned


def straightened(lowering: Lowering, address: Value) -> tuple[Value, str]:
    """A WIDE address with an affine index as AFFINE, and an i1: whether that is exact.

    It is unless the index wraps between the first lane and the last.
    """
    builder = lowering.builder
    shape = address.shape
    how = "sext" if shape.is_signed else "zext"
    index = builder.name(f"{how} i32 {address.index} to i64")
    base = builder.name(f"mul i64 {index}, {shape.scale}")
    base = builder.name(f"add i64 {address.text}, {base}")
    last = builder.name(f"add i64 {index}, {(builder.lanes - 1) * shape.stride}")
    narrow = builder.name(f"trunc i64 {last} to i32")
    again = builder.name(f"{how} i32 {narrow} to i64")
    is_straight = builder.name(f"icmp eq i64 {last}, {again}")
    return Value("i64", base, affine(shape.stride * shape.scale, 64)), is_straight


def _wide_ends(
    lowering: Lowering, address: Value, span: Span, *, whole: bool
) -> tuple[str, str, str]:
    """Lowest and highest address, and alignment, of a varying index."""
    builder = lowering.builder
    shape = address.shape
    how = "sext" if shape.is_signed else "zext"
    low, high = _ends(lowering, address.index, "i32", is_signed=shape.is_signed, whole=whole)
    ends = []
    for index in (low, high) if shape.scale > 0 else (high, low):
        extended = builder.name(f"{how} i32 {index} to i64")
        scaled = builder.name(f"mul i64 {extended}, {shape.scale}")
        ends.append(builder.name(f"add i64 {scaled}, {address.text}"))
    if shape.scale % span.alignment == 0:
        return ends[0], ends[1], _aligned(lowering, address.text, span.alignment)
    # The low bits of base + scale * index do not depend on the kind of extension.
    narrow = builder.truncate(uniform("i64", address.text), "i32")
    bits = builder.vector_type("i32")
    scaled = builder.name(f"mul {bits} {address.index}, splat (i32 {shape.scale})")
    total = builder.name(f"add {bits} {scaled}, {builder.splat('i32', narrow.text)}")
    return ends[0], ends[1], _all_aligned(lowering, total, "i32", span, whole=whole)


def _affine_ends(lowering: Lowering, base: str, stride: int, *, whole: bool) -> tuple[str, str]:
    """The lowest and highest address of the active lanes."""
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
    """The least and greatest value of the active lanes."""
    builder = lowering.builder
    bits = int(type_[1:])
    extremes = ((1 << (bits - 1)) - 1, -(1 << (bits - 1))) if is_signed else (-1, 0)
    sign = "s" if is_signed else "u"
    typed = builder.vector_type(type_)
    found = []
    for operation, idle in zip((f"{sign}min", f"{sign}max"), extremes, strict=True):
        lanes = vector
        if not whole:
            flags = f"{builder.vector_type('i1')} {lowering.mask}"
            lanes = builder.name(
                f"select {flags}, {typed} {vector}, {typed} splat ({type_} {idle})"
            )
        full = f"@llvm.vector.reduce.{operation}.v{builder.lanes}{type_}"
        builder.declarations.add(f"declare {type_} {full}({typed})")
        found.append(builder.name(f"call {type_} {full}({typed} {lanes})"))
    return found[0], found[1]


def _all_aligned(lowering: Lowering, vector: str, type_: str, span: Span, *, whole: bool) -> str:
    builder = lowering.builder
    if span.alignment == 1:
        return "true"
    typed = builder.vector_type(type_)
    if not whole:
        flags = f"{builder.vector_type('i1')} {lowering.mask}"
        vector = builder.name(f"select {flags}, {typed} {vector}, {typed} zeroinitializer")
    full = f"@llvm.vector.reduce.or.v{builder.lanes}{type_}"
    builder.declarations.add(f"declare {type_} {full}({typed})")
    together = builder.name(f"call {type_} {full}({typed} {vector})")
    low_bits = builder.name(f"and {type_} {together}, {span.alignment - 1}")
    return builder.name(f"icmp eq {type_} {low_bits}, 0")


def _aligned(lowering: Lowering, address: str, alignment: int) -> str:
    if alignment == 1:
        return "true"
    builder = lowering.builder
    low_bits = builder.name(f"and i64 {address}, {alignment - 1}")
    return builder.name(f"icmp eq i64 {low_bits}, 0")


def _plus(lowering: Lowering, address: str, offset: int) -> str:
    return lowering.builder.name(f"add i64 {address}, {offset}") if offset else address
