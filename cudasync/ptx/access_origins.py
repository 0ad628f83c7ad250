"""Floor 0. Where a value may come from: sets of origins as the bits of one integer.

An origin is a kernel parameter, a field of one that is a struct, or a variable of the module. A
value derives from it in one of four ways, each a bit:

- DIRECT: it may be the address that the origin gives, moved by some offset;
- LOADED: it may be something read through such an address, whole, so perhaps a pointer;
- PIECE_DIRECT, PIECE_LOADED: it has at most 32 bits of such a value in their old order, or those
  bits scaled. It is an index, unless somebody joins it to other pieces in 64 bits.

Besides there are addresses of memory whose contents are followed (local, shared, parameters),
one bit for each such cell; HEAP, an address of memory that nobody else knows; and ANY, an
address that may be anything. A number that was multiplied is none of these: the empty set.

Why pieces are sound. What tells one allocation from another is the upper half of an address: the
lower half alone is an index into 4 GiB. So a value is a pointer only if its upper half came from
one. What is in a register of 32 bits, or was cut to 32 bits, has no upper half. It gets to be one
in few ways: `mov.b64 {lo, hi}`, a `shl.b64` that is far enough, `bfi.b64`, or memory that was
stored in parts and is loaded whole. Each of these makes whole values of the pieces that get into
the upper half (`as_joined`). All others, `shl.b32` among them however far it shifts, leave pieces.

A part of a struct counts as LOADED when it was not loaded as one aligned word, since the bytes of
one pointer may then lie in two fields.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_BITS_PER_ORIGIN = 4
# From a whole value's bit to the bit of its pieces.
_TO_PIECE = 2


class Origins:
    """The layout of such sets for `count` origins, of which those in `fields` are of structs."""

    __slots__ = ("any", "base", "cells", "direct", "fields", "heap", "loaded", "pieces")

    # Masks: all DIRECT bits, all LOADED bits, those of the pieces of both; DIRECT bits of fields.
    direct: int
    loaded: int
    pieces: int
    fields: int
    heap: int
    any: int
    # The lowest bit of the cells.
    cells: int
    # Every bit that a base of an address can have: all but those of pieces.
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
        """The set of one: the address that `origin` gives."""
        return 1 << _BITS_PER_ORIGIN * origin

    def cell_bit(self, cell: int) -> int:
        """The set of one: an address in `cell`."""
        return self.cells << cell

    def split_cells(self, values: int) -> tuple[list[int], int]:
        """The cells that `values` may be addresses in, and the rest of the set."""
        cells = list(ones(values // self.cells))
        return cells, values & (self.cells - 1)

    def as_number(self, values: int) -> int:
        """What is left when `values` are multiplied: nothing that is a pointer."""
        return values & self.any

    def as_piece(self, values: int) -> int:
        """What is left when `values` are cut to 32 bits."""
        whole = values & (self.direct | self.loaded)
        torn = whole & self.fields
        return values & ~whole | (whole ^ torn) << _TO_PIECE | torn << _TO_PIECE + 1

    def as_joined(self, values: int) -> int:
        """`values` moved to the upper half of 64 bits, as when a pointer is put together again."""
        return values | (values & self.pieces) >> _TO_PIECE

    def as_loaded(self, values: int) -> int:
        """What memory at addresses `values` holds, besides what was seen to be stored."""
        return (values & self.direct) << 1 | values & (self.loaded | self.any)

    def which(self, values: int) -> Iterator[int]:
        """The origins of which any of the given bits is set."""
        merged = (values | values >> 1 | values >> 2 | values >> 3) & self.direct
        return (place // _BITS_PER_ORIGIN for place in ones(merged))


def ones(bits: int) -> Iterator[int]:
    """The places of the one bits, lowest first."""
    while bits:
        lowest = bits & -bits
        yield lowest.bit_length() - 1
        bits ^= lowest
