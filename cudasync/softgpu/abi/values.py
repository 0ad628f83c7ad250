"""Cellar. Reading and writing the C values that driver calls point to.

An out-pointer that is null is the caller's mistake: CUDA_ERROR_INVALID_VALUE. The optional ones
have functions of their own.
"""

from __future__ import annotations

import ctypes

from cudasync.softgpu.core.results import INVALID_VALUE, DriverFailure

_i32 = ctypes.c_int32.from_address
_u32 = ctypes.c_uint32.from_address
_u64 = ctypes.c_uint64.from_address
_f32 = ctypes.c_float.from_address


def put_i32(address: int, value: int) -> None:
    """Write an int, an enum or a CUdevice."""
    if not address:
        raise DriverFailure(INVALID_VALUE, "an output pointer is null")
    _i32(address).value = value


def put_u32(address: int, value: int) -> None:
    """Write an unsigned int."""
    if not address:
        raise DriverFailure(INVALID_VALUE, "an output pointer is null")
    _u32(address).value = value


def put_u64(address: int, value: int) -> None:
    """Write a handle, a pointer, a size_t or a 64-bit integer."""
    if not address:
        raise DriverFailure(INVALID_VALUE, "an output pointer is null")
    _u64(address).value = value


def put_f32(address: int, value: float) -> None:
    """Write a float."""
    if not address:
        raise DriverFailure(INVALID_VALUE, "an output pointer is null")
    _f32(address).value = value


def offer_u64(address: int, value: int) -> None:
    """Write where the caller gave a pointer."""
    if address:
        _u64(address).value = value


def offer_u32(address: int, value: int) -> None:
    """Write where the caller gave a pointer."""
    if address:
        _u32(address).value = value


def need(address: int) -> None:
    """Refuse a null pointer before anything is done that could not be undone."""
    if not address:
        raise DriverFailure(INVALID_VALUE, "an output pointer is null")


def get_i32(address: int) -> int:
    """Read an int."""
    need(address)
    return _i32(address).value


def get_u32(address: int) -> int:
    """Read an unsigned int."""
    need(address)
    return _u32(address).value


def get_u64(address: int) -> int:
    """Read a pointer or a 64-bit integer."""
    need(address)
    return _u64(address).value


def get_text(address: int) -> str:
    """Read a C string."""
    need(address)
    return ctypes.string_at(address).decode("utf-8", "replace")


def put_text(address: int, capacity: int, text: str) -> None:
    """Write a C string, cut to `capacity` bytes with its terminator."""
    need(address)
    if capacity <= 0:
        raise DriverFailure(INVALID_VALUE, "there is no room for the text")
    data = text.encode()[: capacity - 1] + b"\0"
    ctypes.memmove(address, data, len(data))
