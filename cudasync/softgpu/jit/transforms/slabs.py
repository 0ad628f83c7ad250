"""Cellar, jit. Slabs: the local memory of threads, one behind the other."""

from __future__ import annotations

from typing import Final, NamedTuple

_LINE_BYTES: Final = 64
# Smaller slabs spread well enough, and would grow by much.
_LEAST_SPREAD_BYTES: Final = 512


class Slab(NamedTuple):
    """The local memory of one thread: what the thread may use, and the alignment."""

    size_bytes: int
    alignment: int

    @property
    def stride(self) -> int:
        """The distance to the next thread's slab.

        An odd number of cache lines: the same place in the slabs of a warp then lies in as many
        sets of the cache as it has lanes. By powers of two it would lie in few sets, which hold
        less than a warp.
        """
        if self.size_bytes < _LEAST_SPREAD_BYTES:
            return self.size_bytes
        unit = max(_LINE_BYTES, self.alignment)
        return (-(-self.size_bytes // unit) | 1) * unit
