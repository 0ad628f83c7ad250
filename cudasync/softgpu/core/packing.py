"""Cellar. From an array of pointers to arguments to the bytes of a parameter block.

Worked out once for each function: this runs at every launch.
"""

from __future__ import annotations

import ctypes
import struct
from typing import TYPE_CHECKING, Any, Final

from cudasync.softgpu.core.results import INVALID_VALUE, DriverFailure

if TYPE_CHECKING:
    from collections.abc import Sequence

# By size: how struct writes an unsigned integer, and how ctypes reads one at an address.
_WORDS: Final[dict[int, tuple[str, Any]]] = {
    1: ("B", ctypes.c_uint8.from_address),
    2: ("H", ctypes.c_uint16.from_address),
    4: ("I", ctypes.c_uint32.from_address),
    8: ("Q", ctypes.c_uint64.from_address),
}


class _Bytes:
    """The bytes at an address, in the form that ctypes gives integers."""

    __slots__ = ("value",)

    def __init__(self, address: int, size: int) -> None:
        self.value = ctypes.string_at(address, size)


class Packing:
    """Copies arguments of the given places into blocks of `size_bytes`."""

    __slots__ = ("_block", "_name", "_pointers", "_readers")

    def __init__(self, name: str, places: Sequence[tuple[int, int]], size_bytes: int) -> None:
        """`places` are (offset, size in bytes), in the order of the arguments."""
        self._name = name
        self._pointers = (ctypes.c_uint64 * len(places)).from_address
        self._readers = []
        form = "<"
        end = 0
        for offset, size in places:
            letter, read = _WORDS.get(size) or (f"{size}s", lambda a, n=size: _Bytes(a, n))
            form += f"{offset - end}x{letter}"
            end = offset + size
            self._readers.append(read)
        self._block = struct.Struct(f"{form}{size_bytes - end}x")

    def pack(self, address: int) -> bytes:
        """The block for the array of pointers at `address`; DriverFailure if one is null."""
        pointers = self._pointers(address)[:]
        if 0 in pointers:
            raise DriverFailure(
                INVALID_VALUE, f"kernel {self._name}: the address of an argument is null"
            )
        return self._block.pack(
            *[read(pointer).value for read, pointer in zip(self._readers, pointers, strict=False)]
        )
