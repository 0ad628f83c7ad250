"""Cellar. Reads and writes the C values that the pointers of driver calls lead to.

A pointer that is null, or points to no memory at all, is the caller's mistake. It is
CUDA_ERROR_INVALID_VALUE, where a driver would crash the process. Optional pointers have functions
of their own. The check only asks whether there are pages. It does not detect pages without rights,
or memory that the caller has freed and the process has kept.
"""

from __future__ import annotations

import ctypes
from typing import Final, TypeVar

from cudasync.softgpu.core.driver_types.result_codes import INVALID_VALUE, DriverFailure
from cudasync.softgpu.core.memory.host_pages import is_code
from cudasync.softgpu.core.memory.host_pages import need as need

_S = TypeVar("_S", bound=ctypes.Structure)

_PAGE_BYTES: Final = 4096

_i32 = ctypes.c_int32.from_address
_u32 = ctypes.c_uint32.from_address
_u64 = ctypes.c_uint64.from_address
_f32 = ctypes.c_float.from_address


def put_i32(address: int, value: int) -> None:
    """Write an int, an enum or a CUdevice."""
    need(address, 4)
    _i32(address).value = value


def put_u32(address: int, value: int) -> None:
    """Write an unsigned int."""
    need(address, 4)
    _u32(address).value = value


def put_u64(address: int, value: int) -> None:
    """Write a handle, a pointer, a size_t or a 64-bit integer."""
    need(address, 8)
    _u64(address).value = value


def put_f32(address: int, value: float) -> None:
    """Write a float."""
    need(address, 4)
    _f32(address).value = value


def offer_u64(address: int, value: int) -> None:
    """Write a 64-bit value if the caller gave a pointer."""
    if address:
        need(address, 8)
        _u64(address).value = value


def offer_u32(address: int, value: int) -> None:
    """Write an unsigned int if the caller gave a pointer."""
    if address:
        need(address, 4)
        _u32(address).value = value


def need_code(address: int) -> None:
    """Refuse a function pointer that leads to no code."""
    if not address or not is_code(address):
        raise DriverFailure(INVALID_VALUE, f"there is no function at {address:#x}")


def need_no_flags(flags: int) -> None:
    """Refuse flags where none are defined yet."""
    if flags:
        raise DriverFailure(INVALID_VALUE, f"the flags must be 0, not {flags:#x}")


def structure_at(structure: type[_S], address: int) -> _S:
    """The structure that a pointer points to."""
    need(address, ctypes.sizeof(structure))
    return structure.from_address(address)


def get_i32(address: int) -> int:
    """Read an int."""
    need(address, 4)
    return _i32(address).value


def get_u32(address: int) -> int:
    """Read an unsigned int."""
    need(address, 4)
    return _u32(address).value


def get_u64(address: int) -> int:
    """Read a pointer or a 64-bit integer."""
    need(address, 8)
    return _u64(address).value


def get_text(address: int) -> str:
    """Read a C string."""
    return get_bytes(address).decode("utf-8", "replace")


def get_bytes(address: int) -> bytes:
    """Read the bytes before the next zero, page by page."""
    found = []
    while True:
        need(address, 1)
        room = _PAGE_BYTES - address % _PAGE_BYTES
        data, zero, _ = ctypes.string_at(address, room).partition(b"\0")
        found.append(data)
        if zero:
            return b"".join(found)
        address += room


def put_text(address: int, capacity: int, text: str) -> None:
    """Write a C string, cut to `capacity` bytes with its terminator."""
    need(address, max(1, capacity))
    if capacity <= 0:
        raise DriverFailure(INVALID_VALUE, "the buffer has no room for the text")
    data = text.encode()[: capacity - 1] + b"\0"
    ctypes.memmove(address, data, len(data))
