"""Floor 5. Compressed values as bytes between processes: eight or four values in each byte.

Values are in C order; the rest of the last byte has no meaning.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    Value = np.ndarray[Any, Any]

# Four values a byte, two bits each, from the lowest on: 0 is 0, 1 is plus, 2 is minus.
_SHIFTS = np.array([0, 2, 4, 6], np.uint8)
_SIGNS = np.array([0, 1, -1, 0], np.int8)
_FOUR = _SIGNS[(np.arange(256, dtype=np.uint8)[:, None] >> _SHIFTS) & 3]


class Packed(NamedTuple):
    """How values were packed: "1bit" (plus and minus 1) or "2bit" (the threshold, its minus, 0)."""

    kind: str
    threshold: float

    def size_bytes(self, count: int) -> int:
        """The bytes of `count` values."""
        return -(-count // (8 if self.kind == "1bit" else 4))

    def pack(self, values: Value) -> Value:
        """The bytes of compressed values."""
        flat = values.reshape(-1)
        if self.kind == "1bit":
            return np.packbits(flat > 0)
        codes = np.zeros(4 * self.size_bytes(flat.size), np.uint8)
        codes[: flat.size] = (flat > 0) + 2 * (flat < 0).view(np.uint8)
        fours = codes.reshape(-1, 4)
        return fours[:, 0] | fours[:, 1] << 2 | fours[:, 2] << 4 | fours[:, 3] << 6

    def unpack(self, packed: Value, count: int, dtype: Any) -> Value:
        """`count` values of the bytes, in one dimension."""
        if self.kind == "1bit":
            bits = np.unpackbits(packed, count=count)
            return np.array([-1, 1], dtype)[bits]
        signs = _FOUR[packed].reshape(-1)[:count]
        values: Value = signs * np.dtype(dtype).type(self.threshold)
        return values.astype(dtype, copy=False)
