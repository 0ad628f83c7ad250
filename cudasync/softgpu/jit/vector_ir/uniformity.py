"""Cellar, jit. The shape of a register: how its values differ from lane to lane of a warp.

UNIFORM    every lane holds the same value; one scalar.
AFFINE     lane i holds base + i * stride modulo the width; a scalar base, a constant stride.
WIDE       a 64-bit base + scale * extend(index), where index is a 32-bit value that is affine or
           varying and the extension is signed or not. Addresses have this form. It is exact
           because the index stays narrow: only a use of the address tests whether the index wraps
           within the warp.
LIFTED     a WIDE value, or zero, to which a uniform value is added in the lanes of a mask: see
           `wraparound_indices`.
VARYING    anything; a vector.

A shape is a static property of a register, found by `divergence`; a `Value` carries the shape with
which it was computed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum, unique


@unique
class Kind(Enum):
    UNIFORM = "uniform"
    AFFINE = "affine"
    WIDE = "wide"
    LIFTED = "lifted"
    VARYING = "varying"


@dataclass(frozen=True, slots=True)
class Shape:
    """`stride` belongs to an AFFINE value, or to the affine index of a WIDE value.

    The index of a WIDE value is affine if `stride` is not 0, else varying. A LIFTED value with
    scale 0 is zero except in its lanes.
    """

    kind: Kind
    stride: int = 0
    scale: int = 0
    is_signed: bool = False

    @property
    def is_uniform(self) -> bool:
        return self.kind is Kind.UNIFORM

    @property
    def is_varying(self) -> bool:
        return self.kind is Kind.VARYING


UNIFORM = Shape(Kind.UNIFORM)
VARYING = Shape(Kind.VARYING)
LIFT = Shape(Kind.LIFTED)


def affine(stride: int, bits: int) -> Shape:
    """The shape of base + lane * stride in `bits` bits; UNIFORM if the stride vanishes."""
    half = 1 << (bits - 1)
    wrapped = (stride + half) % (2 * half) - half
    return Shape(Kind.AFFINE, stride=wrapped) if wrapped else UNIFORM


def wide(index: Shape, *, scale: int, is_signed: bool) -> Shape:
    """The shape of base + scale * extend(index)."""
    assert index.kind in (Kind.AFFINE, Kind.VARYING), index
    return Shape(Kind.WIDE, stride=index.stride, scale=scale, is_signed=is_signed)


def join(first: Shape, second: Shape) -> Shape:
    """The shape of a register that may hold either.

    Shapes that differ in their index alone join to a varying index: an address stays narrow when
    its index turns out to vary.
    """
    if first == second:
        return first
    has_index = first.kind in (Kind.WIDE, Kind.LIFTED) and first.scale != 0
    if has_index and replace(first, stride=0) == replace(second, stride=0):
        return replace(first, stride=0)
    return VARYING
