"""Cellar. Packs a launch's arguments, given by pointers, into the bytes of a parameter block.

This runs at every launch, so most of the work is done once for each function.
"""

from __future__ import annotations

import ctypes
import struct
from typing import TYPE_CHECKING, Any, Final

from cudasync.softgpu.core.driver_types.result_codes import INVALID_VALUE, DriverFailure
from cudasync.softgpu.core.memory.host_pages import need, need_all

if TYPE_CHECKING:
    from collections.abc import Sequence

# By size: how struct writes an unsigned integer, and how ctypes reads one at an address.
_WORDS: Final[dict[int, tuple[str, Any]]] = {
    1: ("B", ctypes.c_uint8.from_address),
    2: ("H", ctypes.c_uint16.from_address),
    4: ("I", ctypes.c_uint32.from_address),
    8: ("Q", ctypes.c_uint64.from_address),
}


# The number of pointer arrays that are cached for a kernel.
_MOST_SEEN: Final = 128


class _Bytes:
    """The bytes at an address, with the interface of a ctypes integer."""

    __slots__ = ("_address", "_size")

    def __init__(self, address: int, size: int) -> None:
        self._address = address
        self._size = size

    @property
    def value(self) -> bytes:
        return ctypes.string_at(self._address, self._size)


class Packing:
    """Copies arguments of the given places into blocks of `size_bytes`.

    Callers that pack once and launch often pass the same pointers again. So do bindings that
    allocate memory for each launch and free it afterwards. If the arguments lie at the distances
    of the places, one copy takes all of them.
    """

    __slots__ = ("_array_at", "_block", "_block_at", "_name", "_offsets", "_readers", "_seen")

    def __init__(self, name: str, places: Sequence[tuple[int, int]], size_bytes: int) -> None:
        """`places` are (offset, size in bytes), in the order of the arguments."""
        self._name = name
        # `from_address` has half the cost of `string_at`.
        self._array_at = (ctypes.c_char * (8 * len(places))).from_address
        self._block_at = (ctypes.c_char * size_bytes).from_address
        self._readers = []
        form = "<"
        end = 0
        for offset, size in places:
            letter, read = _WORDS.get(size) or (f"{size}s", lambda a, n=size: _Bytes(a, n))
            form += f"{offset - end}x{letter}"
            end = offset + size
            self._readers.append(read)
        self._block = struct.Struct(f"{form}{size_bytes - end}x")
        # None if a copy of the whole block would read behind the last argument.
        self._offsets = [offset for offset, _ in places] if end == size_bytes else None
        # By the address of a pointer array: the array, its contents, and the block at its first
        # pointer or, if the arguments lie elsewhere, a reader for each. The cache keeps addresses,
        # not values; `pack` reads the values each time.
        self._seen: dict[int, tuple[Any, bytes, Any, list[Any]]] = {}

    def pack(self, address: int) -> bytes:
        """The block for the array of pointers at `address`; DriverFailure if a pointer is null."""
        seen = self._seen.get(address)
        if seen is not None and seen[0].raw == seen[1]:
            if seen[2] is None:
                return self._block.pack(*[argument.value for argument in seen[3]])
            block: bytes = seen[2].raw
            return block
        if not self._readers:
            return self._block.pack()
        need(address, 8 * len(self._readers))
        there = self._array_at(address)
        array = there.raw
        pointers = struct.unpack(f"={len(self._readers)}Q", array)
        if 0 in pointers:
            raise DriverFailure(
                INVALID_VALUE, f"kernel {self._name}: kernelParams has a null pointer"
            )
        need_all(pointers)
        is_block = self._offsets == [pointer - pointers[0] for pointer in pointers]
        if len(self._seen) >= _MOST_SEEN:
            self._seen.clear()
        if is_block:
            whole = self._block_at(pointers[0])
            self._seen[address] = there, array, whole, []
            found: bytes = whole.raw
            return found
        arguments = [read(at) for read, at in zip(self._readers, pointers, strict=True)]
        self._seen[address] = there, array, None, arguments
        return self._block.pack(*[argument.value for argument in arguments])
