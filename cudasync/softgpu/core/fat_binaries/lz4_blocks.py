"""Cellar, core. Unpacks a block of LZ4, after the public description of the LZ4 block format.

A block is a list of sequences. A sequence is a token, literals, and a match: a distance back into
the unpacked bytes, and a length. The last sequence ends behind its literals.
"""

from __future__ import annotations

from typing import Final

_LEAST_MATCH: Final = 4
_FULL: Final = 15


class DamagedBlock(ValueError):
    """The bytes are no block of LZ4, or a block of another size."""


def unpack(block: bytes, size_bytes: int) -> bytes:
    """The `size_bytes` unpacked bytes of a block; DamagedBlock if the size differs."""
    out = bytearray()
    at, end = 0, len(block)
    while at < end:
        token = block[at]
        count, at = _length(block, token >> 4, at + 1)
        if count > end - at or count > size_bytes - len(out):
            raise DamagedBlock("the literals are cut off")
        out += block[at : at + count]
        at += count
        if at == end:
            break
        if end - at < 2:
            raise DamagedBlock("the distance is cut off")
        distance = block[at] | block[at + 1] << 8
        count, at = _length(block, token & _FULL, at + 2)
        count += _LEAST_MATCH
        if not 0 < distance <= len(out):
            raise DamagedBlock(f"a match starts {distance} bytes back, before the first byte")
        if count > size_bytes - len(out):
            raise DamagedBlock("the match is too long")
        _repeat(out, distance, count)
    if len(out) != size_bytes:
        raise DamagedBlock(f"it has {len(out)} bytes, not {size_bytes} as its header says")
    return bytes(out)


def _length(block: bytes, short: int, at: int) -> tuple[int, int]:
    """A length of four bits with its continuation bytes, and the position behind them."""
    total = short
    if short == _FULL:
        while True:
            if at >= len(block):
                raise DamagedBlock("a length is cut off")
            more = block[at]
            at += 1
            total += more
            if more != 255:
                break
    return total, at


def _repeat(out: bytearray, distance: int, count: int) -> None:
    """Append `count` bytes from `distance` back; they may overlap the appended bytes."""
    start = len(out) - distance
    if count <= distance:
        out += out[start : start + count]
        return
    pattern = bytes(out[start:])
    out += (pattern * (count // distance + 1))[:count]
