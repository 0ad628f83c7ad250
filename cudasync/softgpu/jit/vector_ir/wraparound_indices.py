"""Cellar, jit. Negative indices, which count from the end of an array.

numba writes `x[i]` as `i + (size & (i >> 63))`; if the size is a power of two, it shifts the sign
into place. In a warp nearly all lanes then remain adjacent. But an address that differs between
lanes by more than an index would be a 64-bit vector, and its access a gather. So such a value is
LIFTED: the value without negative lanes, and beside it the amount that is added in the lanes of a
mask. An access tests whether there are such lanes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from cudasync.softgpu.jit.vector_ir.lane_masks import mask_bits
from cudasync.softgpu.jit.vector_ir.uniformity import LIFT, Kind
from cudasync.softgpu.jit.vector_ir.values import Value, integer, uniform

if TYPE_CHECKING:
    from collections.abc import Callable

    from cudasync.softgpu.jit.vector_ir.builder import Builder

# Beyond this span the addresses of the first and last lane might be confused.
_FARTHEST = 1 << 62


def where_negative(builder: Builder, value: Value, amount: int) -> Value | None:
    """`amount` in lanes where `value` is negative, else 0; None if its shape is unsuitable."""
    found = value
    if value.shape.kind is Kind.AFFINE and value.type == "i32":
        found = builder.extend(value, "i64", is_signed=True)
    if found.shape.kind is not Kind.WIDE:
        return None
    lift = integer(value.type, amount).text, _negative_lanes(builder, found)
    return Value(value.type, "0", LIFT, lift=lift)


def is_alone(value: Value) -> bool:
    """Whether a value is zero in all lanes except those of its mask."""
    return value.shape == LIFT


def in_lanes(value: Value, change: Callable[[Value], Value]) -> Value:
    """Apply a scalar operation that takes 0 to 0 to a value that `is_alone`."""
    amount, lanes = value.lift
    changed = change(uniform(value.type, amount))
    return Value(changed.type, "0", LIFT, lift=(changed.text, lanes))


def has_lifted_lanes(builder: Builder, value: Value) -> str:
    """An i1: the mask has a lane."""
    return builder.name(f"icmp ne i{builder.lanes} {value.lift[1]}, 0")


def without_lift(value: Value) -> Value:
    """A LIFTED value without its lifted amount, which is correct if the mask has no lane."""
    shape = value.shape
    if is_alone(value):
        return integer(value.type, 0)
    return replace(value, shape=replace(shape, kind=Kind.WIDE), lift=("", ""))


def lifted(value: Value, by: Value) -> Value:
    """A WIDE value with the lift of another."""
    return replace(value, shape=replace(value.shape, kind=Kind.LIFTED), lift=by.lift)


def _negative_lanes(builder: Builder, value: Value) -> str:
    """The lanes in which a WIDE value is negative, as an integer."""
    shape, lanes = value.shape, builder.lanes
    begin, exact, done = (builder.fresh(each) for each in ("sign", "signs", "signed"))
    builder.emit(f"br label %{begin}")
    builder.label(begin)
    is_quick = "false"
    reach = (lanes - 1) * shape.stride
    span = reach * shape.scale
    if shape.stride and abs(reach) < 1 << 31 and abs(span) < _FARTHEST:
        # If both ends are not negative, no lane between them is.
        first = builder.first_lane(value)
        last = builder.name(f"add i64 {first}, {span}")
        either = builder.name(f"or i64 {first}, {last}")
        is_positive = builder.name(f"icmp sge i64 {either}, 0")
        is_quick = builder.name(f"and i1 {is_positive}, {builder.is_straight(value)}")
    builder.emit(f"br i1 {is_quick}, label %{done}, label %{exact}, !prof !2")
    builder.label(exact)
    vector = builder.vector_type("i64")
    flags = builder.name(f"icmp slt {vector} {builder.vector(value)}, zeroinitializer")
    found = mask_bits(builder, flags)
    builder.emit(f"br label %{done}")
    builder.label(done)
    return builder.name(f"phi i{lanes} [0, %{begin}], [{found}, %{exact}]")
