"""Cellar, jit. A 64-bit index held against a bound, in 32 bits.

Programs ask of an index in 64 bits whether it is within an array. Where the index is WIDE, with
scale 1, and neither it nor the bound is anywhere near the ends of 64 bits, that is a question about
its 32-bit part: whether it is below what the bound is above the base. Vectors are half as long so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.softgpu.jit.vector_ir.uniformity import Kind
from cudasync.softgpu.jit.vector_ir.values import Value, integer, uniform, varying

if TYPE_CHECKING:
    from cudasync.softgpu.jit.vector_ir.builder import Builder

# Bases and bounds up to here, away from zero, can be subtracted from one another.
_FAR = 1 << 61
# By relation: whether the bound is meant itself as well as what is below, and whether the answer
# is then the opposite.
_RELATIONS = {"lt": (0, False), "le": (1, False), "gt": (1, True), "ge": (0, True)}
_MIRRORED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}


def compare_narrow(
    builder: Builder, relation: str, first: Value, second: Value, *, is_signed: bool
) -> Value | None:
    """Two 64-bit integers compared; None unless one is such an index and one is uniform."""
    if second.shape.kind is Kind.WIDE:
        first, second, relation = second, first, _MIRRORED.get(relation, "")
    shape = first.shape
    is_index = shape.kind is Kind.WIDE and shape.scale == 1 and second.is_uniform
    # An index that may be negative is among the largest numbers without a sign.
    if not is_index or relation not in _RELATIONS or (shape.is_signed and not is_signed):
        return None
    begin, exact, done = (builder.fresh(each) for each in ("narrow", "compare", "compared"))
    builder.emit(f"br label %{begin}")
    builder.label(begin)
    is_near = builder.name(
        f"and i1 {_is_near(builder, first.text, is_signed=is_signed)},"
        f" {_is_near(builder, second.text, is_signed=is_signed)}"
    )
    more, is_opposite = _RELATIONS[relation]
    below = _is_below(builder, first, second.text, more)
    if is_opposite:
        below = builder.binary("xor", below, integer("i1", 1))
    begin_end = builder.fresh("narrowed")
    builder.emit(f"br label %{begin_end}")
    builder.label(begin_end)
    builder.emit(f"br i1 {is_near}, label %{done}, label %{exact}, !prof !2")
    builder.label(exact)
    sign = "s" if is_signed else "u"
    whole = builder.varying(builder.compare(f"icmp {sign}{relation}", first, second))
    exact_end = builder.go(done)
    builder.label(done)
    return builder.join(below, begin_end, whole, exact_end)


def _is_near(builder: Builder, text: str, *, is_signed: bool) -> str:
    """An i1: a uniform i64 is not far from zero, nor negative where it has no sign."""
    if is_signed:
        text = builder.name(f"add i64 {text}, {_FAR}")
    return builder.name(f"icmp ult i64 {text}, {2 * _FAR}")


def _is_below(builder: Builder, value: Value, bound: str, more: int) -> Value:
    """Where base + index < bound + more, of which none is far."""
    distance = builder.name(f"sub i64 {bound}, {value.text}")
    if more:
        distance = builder.name(f"add i64 {distance}, {more}")
    sign = "s" if value.shape.is_signed else "u"
    least, most = (-(1 << 31), (1 << 31) - 1) if value.shape.is_signed else (0, (1 << 32) - 1)
    low = builder.intrinsic("smax", "i64", uniform("i64", distance), integer("i64", least))
    held = builder.intrinsic("smin", "i64", low, integer("i64", most))
    narrow = uniform("i32", builder.name(f"trunc i64 {held.text} to i32"))
    below = builder.varying(builder.compare(f"icmp {sign}lt", builder.wide_index(value), narrow))
    # Beyond what an index can be, all are below; the largest index of all would not be.
    is_all = builder.name(f"icmp sgt i64 {distance}, {most}")
    flags = builder.vector_type("i1")
    chosen = f"select i1 {is_all}, {flags} splat (i1 true), {flags} {below.text}"
    return varying("i1", builder.name(chosen))
