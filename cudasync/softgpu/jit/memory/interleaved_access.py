"""Cellar, jit. Interleaves vectors for memory in which one lane's elements are adjacent, and back.

A shuffle of the whole would be one line of text. But LLVM splits a shuffle that is wider than its
registers by trial. A few shuffles of four vectors were a third of its work on a kernel. So here
each shuffle is of two registers, and `count`, a power of two, is reached by repeated halving.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from cudasync.softgpu.jit.vector_ir.values import bits_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cudasync.softgpu.jit.vector_ir.builder import Builder

# The width of the widest registers; with narrower registers each shuffle becomes a few.
_REGISTER_BITS = 512


def load_apart(builder: Builder, start: str, type_: str, count: int) -> list[str]:
    """Load `count` elements a lane from `start`: a vector of the first elements, and so on."""
    width = _width(builder, type_)
    size = width * bits_of(type_) // 8
    pieces = []
    for n in range(builder.lanes * count // width):
        at = builder.name(f"getelementptr i8, ptr {start}, i64 {n * size}")
        pieces.append(builder.name(f"load <{width} x {type_}>, ptr {at}, align 1"))
    return [_joined(builder, each, type_, width) for each in _apart(builder, pieces, type_, count)]


def together(builder: Builder, vectors: list[str], type_: str) -> str:
    """One vector in memory order: each lane's elements, one from each of `vectors`, adjacent."""
    lanes, width = builder.lanes, _width(builder, type_)
    starts = range(0, lanes, width)
    cut = [
        [_shuffle(builder, each, "poison", type_, lanes, range(n, n + width)) for n in starts]
        for each in vectors
    ]
    return _joined(builder, _together(builder, cut, type_), type_, width)


def _width(builder: Builder, type_: str) -> int:
    return min(_REGISTER_BITS // bits_of(type_), builder.lanes)


def _apart(builder: Builder, pieces: list[str], type_: str, count: int) -> list[list[str]]:
    """For each of the `count` elements, the pieces of its vector."""
    if count == 1:
        return [pieces]
    width = _width(builder, type_)
    halves = [
        [
            _shuffle(builder, a, b, type_, width, range(first, 2 * width, 2))
            for a, b in zip(pieces[::2], pieces[1::2], strict=True)
        ]
        for first in (0, 1)
    ]
    evens, odds = (_apart(builder, half, type_, count // 2) for half in halves)
    return [each for pair in zip(evens, odds, strict=True) for each in pair]


def _together(builder: Builder, cut: list[list[str]], type_: str) -> list[str]:
    """The pieces of the whole, from the pieces of the vectors."""
    if len(cut) == 1:
        return cut[0]
    width = _width(builder, type_)
    evens, odds = (_together(builder, half, type_) for half in (cut[::2], cut[1::2]))
    halves = range(width // 2), range(width // 2, width)
    return [
        _shuffle(builder, a, b, type_, width, _turns(half, width))
        for a, b in zip(evens, odds, strict=True)
        for half in halves
    ]


@functools.cache
def _turns(half: range, width: int) -> tuple[int, ...]:
    """The places of `half` in the first register and in the second, alternating."""
    return tuple(place for first in half for place in (first, width + first))


def _joined(builder: Builder, pieces: list[str], type_: str, width: int) -> str:
    """One vector of consecutive pieces."""
    while len(pieces) > 1:
        pieces = [
            _shuffle(builder, a, b, type_, width, range(2 * width))
            for a, b in zip(pieces[::2], pieces[1::2], strict=True)
        ]
        width *= 2
    return pieces[0]


def _shuffle(builder: Builder, a: str, b: str, type_: str, width: int, order: Sequence[int]) -> str:
    part = f"<{width} x {type_}>"
    return builder.name(f"shufflevector {part} {a}, {part} {b}, {_mask(order)}")


@functools.cache
def _mask(order: Sequence[int]) -> str:
    return f"<{len(order)} x i32> <{', '.join(f'i32 {place}' for place in order)}>"
