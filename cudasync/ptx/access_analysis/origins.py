"""Floor 0. Where a value may come from: sets of origins as the bits of one integer.

An origin is a kernel parameter, a field of a struct parameter, or a variable of the module. A value
derives from an origin in one of four ways, each a bit:

- DIRECT: the value may be the address that the origin gives, moved by some offset;
- LOADED: the value may have been read through such an address, whole, so it may be a pointer;
- PIECE_DIRECT, PIECE_LOADED: the value has at most 32 bits of such a value in their old order, or
  those bits scaled. It is an index, unless it is joined to other pieces in 64 bits.

There are three more kinds of bits. Each cell of memory whose contents are followed (local, shared,
parameters) has a bit for its address. HEAP is an address of memory that no other code knows. ANY is
an address that may be anything. A number that was multiplied is the empty set.

Why pieces are sound. The upper half of an address tells one allocation from another; the lower
half alone is an index into 4 GiB. So a value is a pointer only if its upper half came from a
pointer. A value in a register of 32 bits, or cut to 32 bits, has no upper half. Only a few
instructions move it into one: `mov.b64 {lo, hi}`, a `shl.b64` that shifts far enough, `bfi.b64`, or
a whole load of memory that was stored in parts. Each of these makes whole values of the pieces
that go into the upper half (`as_joined`). All others leave pieces, including `shl.b32` by any
amount.

A part of a struct counts as LOADED if it was not loaded as one aligned word: the bytes of one
pointer may then lie in two fields.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_BITS_PER_ORIGIN = 4
# From a whole value's bit to the bit of its pieces.
_TO_PIECE = 2


class Origins:
    """The layout of such sets for `count` origins; those in `fields` are fields of structs."""

    __slots__ = ("any", "base", "cells", "direct", "fields", "heap", "loaded", "pieces")

    # Masks: all DIRECT bits, all LOADED bits, the bits of pieces of both, DIRECT bits of fields.
    direct: int
    loaded: int
    pieces: int
    fields: int
    heap: int
    any: int
    # The lowest bit of the cells.
    cells: int
    # Every bit that the base of an address can have: all bits but those of pieces.
    base: int

    def __init__(self, count: int, fields: Iterable[int] = ()) -> None:
        top = _BITS_PER_ORIGIN * count
        self.direct = sum(1 << place for place in range(0, top, _BITS_PER_ORIGIN))
        self.loaded = self.direct << 1
        self.pieces = (self.direct | self.loaded) << _TO_PIECE
        self.fields = sum(self.direct_bit(each) for each in fields)
        self.heap = 1 << top
        self.any = 1 << (top + 1)
        self.cells = 1 << (top + 2)
        self.base = ~self.pieces

    @staticmethod
    def direct_bit(origin: int) -> int:
        """The set with one member: the address that `origin` gives."""
        return 1 << _BITS_PER_ORIGIN * origin

    def cell_bit(self, cell: int) -> int:
        """The set with one member: an address in `cell`."""
        return self.cells << cell

    def split_cells(self, values: int) -> tuple[list[int], int]:
        """The cells that `values` may be addresses in, and the rest of the set."""
        cells = list(ones(values // self.cells))
        return cells, values & (self.cells - 1)

    def as_number(self, values: int) -> int:
        """The set that is left when `values` are multiplied: without pointers."""
        return values & self.any

    def as_piece(self, values: int) -> int:
        """The set that is left when `values` are cut to 32 bits."""
        whole = values & (self.direct | self.loaded)
        torn = whole & self.fields
        return values & ~whole | (whole ^ torn) << _TO_PIECE | torn << _TO_PIECE + 1

    def as_joined(self, values: int) -> int:
        """`values` moved to the upper half of 64 bits, as when a pointer is joined again."""
        return values | (values & self.pieces) >> _TO_PIECE

    def as_loaded(self, values: int) -> int:
        """The contents of memory at addresses `values`, apart from values seen to be stored."""
        return (values & self.direct) << 1 | values & (self.loaded | self.any)

    def which(self, values: int) -> Iterator[int]:
        """The origins that have any of the given bits."""
        merged = (values | values >> 1 | values >> 2 | values >> 3) & self.direct
        return (place // _BITS_PER_ORIGIN for place in ones(merged))


def ones(bits: int) -> Iterator[int]:
    """The positions of the set bits, lowest first."""
    while bits:
        lowest = bits & -bits
        yield lowest.bit_length() - 1
        bits ^= lowest
