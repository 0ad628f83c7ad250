"""Cellar, jit. Compares a 64-bit index with a bound in 32 bits.

Programs test whether a 64-bit index is within an array. Suppose that the index is WIDE with scale
1, and neither it nor the bound is near the ends of 64 bits. Then it is enough to compare its 32-bit
part with the distance from the base to the bound, in vectors half as long.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.softgpu.jit.vector_ir.uniformity import Kind
from cudasync.softgpu.jit.vector_ir.values import Value, integer, uniform, varying

if TYPE_CHECKING:
    from cudasync.softgpu.jit.vector_ir.builder import Builder

# Bases and bounds up to this distance from zero can be subtracted without overflow.
_FAR = 1 << 61
# By relation: 1 if values equal to the bound count as below it, else 0; and whether the result is
# then negated.
_RELATIONS = {"lt": (0, False), "le": (1, False), "gt": (1, True), "ge": (0, True)}
_MIRRORED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}


def compare_narrow(
    builder: Builder, relation: str, first: Value, second: Value, *, is_signed: bool
) -> Value | None:
    """Compare two 64-bit integers; None unless one is such an index and the other is uniform."""
    if second.shape.kind is Kind.WIDE:
        first, second, relation = second, first, _MIRRORED.get(relation, "")
    shape = first.shape
    is_index = shape.kind is Kind.WIDE and shape.scale == 1 and second.is_uniform
    # In an unsigned comparison, an index that may be negative is among the largest numbers.
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
    """An i1: a uniform i64 is near zero, and not negative in an unsigned comparison."""
    if is_signed:
        text = builder.name(f"add i64 {text}, {_FAR}")
    return builder.name(f"icmp ult i64 {text}, {2 * _FAR}")


def _is_below(builder: Builder, value: Value, bound: str, more: int) -> Value:
    """The lanes with base + index < bound + more, if base and bound are near zero."""
    distance = builder.name(f"sub i64 {bound}, {value.text}")
    if more:
        distance = builder.name(f"add i64 {distance}, {more}")
    sign = "s" if value.shape.is_signed else "u"
    least, most = (-(1 << 31), (1 << 31) - 1) if value.shape.is_signed else (0, (1 << 32) - 1)
    low = builder.intrinsic("smax", "i64", uniform("i64", distance), integer("i64", least))
    held = builder.intrinsic("smin", "i64", low, integer("i64", most))
    narrow = uniform("i32", builder.name(f"trunc i64 {held.text} to i32"))
    below = builder.varying(builder.compare(f"icmp {sign}lt", builder.wide_index(value), narrow))
    # Above the index range all are below; else the clamp would exclude the largest index.
    is_all = builder.name(f"icmp sgt i64 {distance}, {most}")
    flags = builder.vector_type("i1")
    chosen = f"select i1 {is_all}, {flags} splat (i1 true), {flags} {below.text}"
    return varying("i1", builder.name(chosen))
