"""Floor 0. Where a value may come from: sets of origins as the bits of one integer.

An origin is a kernel parameter or a variable of the module. A value derives from it in one of
three ways, each a bit:

- DIRECT: it may be the address that the origin gives, moved by some offset;
- LOADED: it may be something read through such an address, whole, so perhaps a pointer;
- INDEX: it was multiplied, shifted, widened or rounded, so it is no pointer unless somebody
  puts one together again. It counts only in an address that has no better base.

Besides there are addresses of memory whose contents are followed (local, shared, parameters),
one bit for each such cell; HEAP, an address of memory that nobody else knows; and ANY, an
address that may be anything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_BITS_PER_ORIGIN = 3


class Origins:
    """The layout of such sets for `count` origins."""

    __slots__ = ("any", "base", "cells", "direct", "heap", "index", "loaded")

    # Masks: all DIRECT bits, all LOADED bits, all INDEX bits.
    direct: int
    loaded: int
    index: int
    heap: int
    any: int
    # The lowest bit of the cells.
    cells: int
    # Every bit that a base of an address can have: all but INDEX.
    base: int

    def __init__(self, count: int) -> None:
        top = _BITS_PER_ORIGIN * count
        self.direct = sum(1 << place for place in range(0, top, _BITS_PER_ORIGIN))
        self.loaded = self.direct << 1
        self.index = self.direct << 2
        self.heap = 1 << top
        self.any = 1 << (top + 1)
        self.cells = 1 << (top + 2)
        self.base = ~self.index

    @staticmethod
    def direct_bit(origin: int) -> int:
        """The set of one: the address that `origin` gives."""
        return 1 << _BITS_PER_ORIGIN * origin

    @staticmethod
    def index_bit(origin: int) -> int:
        """The set of one: a number that `origin` gives."""
        return 4 << _BITS_PER_ORIGIN * origin

    def cell_bit(self, cell: int) -> int:
        """The set of one: an address in `cell`."""
        return self.cells << cell

    def split_cells(self, values: int) -> tuple[list[int], int]:
        """The cells that `values` may be addresses in, and the rest of the set."""
        cells = list(ones(values // self.cells))
        return cells, values & (self.cells - 1)

    def as_index(self, values: int) -> int:
        """What is left when `values` are multiplied: nothing that is a pointer."""
        spread = (values & self.direct) << 2 | (values & self.loaded) << 1
        return spread | values & (self.index | self.any)

    def as_high_half(self, values: int) -> int:
        """`values` moved up by half a word, as when a pointer is put together again."""
        numbers = values & self.index
        return values | numbers >> 1 | numbers >> 2

    def as_loaded(self, values: int) -> int:
        """What memory at addresses `values` holds, besides what was seen to be stored."""
        through = (values & self.direct) << 1 | values & (self.loaded | self.any)
        if values & self.base:
            return through
        return through | (values & self.index) >> 1

    def which(self, values: int) -> Iterator[int]:
        """The origins of which any of the given bits is set."""
        merged = (values | values >> 1 | values >> 2) & self.direct
        return (place // _BITS_PER_ORIGIN for place in ones(merged))


def ones(bits: int) -> Iterator[int]:
    """The places of the one bits, lowest first."""
    while bits:
        lowest = bits & -bits
        yield lowest.bit_length() - 1
        bits ^= lowest
