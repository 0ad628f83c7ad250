"""Cellar, abi. The bytes of a module that a driver call gets as a pointer or as a path.

A pointer to a module comes without a length. PTX ends with a zero. A fat binary states its length.
Its wrapper, which `nvcc` puts into a program, says where the fat binary lies.
"""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Final

from cudasync.softgpu.abi.marshalling.pointers import get_bytes, get_text, get_u32, get_u64, need
from cudasync.softgpu.core.driver_types.result_codes import (
    FILE_NOT_FOUND,
    INVALID_IMAGE,
    NOT_SUPPORTED,
    DriverFailure,
)
from cudasync.softgpu.core.fat_binaries import is_container, size_of
from cudasync.softgpu.core.fat_binaries.container import HEADER_BYTES, MAGIC
from cudasync.softgpu.core.memory.host_pages import is_mapped

_WRAPPER_MAGIC: Final = 0x466243B1
_WRAPPER_BYTES: Final = 24
_MOST_BYTES: Final = 1 << 30
# The layout of __fatBinC_Wrapper_t, in CUDA's fatbinary_section.h.
_VERSION_AT, _DATA_AT = 4, 8
_ALONE, _PRELINKED = 1, 2
_MAGICS: Final = (MAGIC.to_bytes(4, "little"), _WRAPPER_MAGIC.to_bytes(4, "little"))


def image_at(address: int) -> bytes:
    """The module at an address: PTX, a fat binary, or the text of something else up to a zero."""
    need(address, 1)
    if ctypes.string_at(address, 1) not in (_MAGICS[0][:1], _MAGICS[1][:1]):
        return get_bytes(address)
    magic = get_u32(address)
    if magic == _WRAPPER_MAGIC:
        return _wrapped(address)
    return _container_at(address) if magic == MAGIC else get_bytes(address)


def _wrapped(address: int) -> bytes:
    need(address, _WRAPPER_BYTES)
    version = get_u32(address + _VERSION_AT)
    if version == _PRELINKED:
        raise DriverFailure(
            NOT_SUPPORTED,
            "the program's device code is linked apart, as `nvcc -rdc=true` does, and is machine "
            "code: build without -rdc",
        )
    data = get_u64(address + _DATA_AT)
    if version != _ALONE or not data:
        raise DriverFailure(INVALID_IMAGE, f"the wrapper of a fat binary has version {version}")
    need(data, HEADER_BYTES)
    return _container_at(data)


def _container_at(address: int) -> bytes:
    need(address, HEADER_BYTES)
    header = ctypes.string_at(address, HEADER_BYTES)
    size = size_of(header) if is_container(header) else 0
    if not size:
        raise DriverFailure(INVALID_IMAGE, "the wrapper of a fat binary leads to no fat binary")
    if size > _MOST_BYTES or not is_mapped(address, size):
        raise DriverFailure(
            INVALID_IMAGE, f"the fat binary is damaged: there are no {size} bytes at {address:#x}"
        )
    return ctypes.string_at(address, size)


def file_at(path: int) -> bytes:
    """The bytes of the file whose name is at `path`; FILE_NOT_FOUND if it cannot be read."""
    name = get_text(path)
    try:
        data = Path(name).read_bytes()
    except OSError as problem:
        raise DriverFailure(FILE_NOT_FOUND, str(problem)) from None
    return data if is_container(data) else data.rstrip(b"\0")
