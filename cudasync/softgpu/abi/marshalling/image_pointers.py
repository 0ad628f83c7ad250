"""Cellar, abi. The bytes of a module that a driver call gets as a pointer or as a path.

A pointer to a module comes without a length. PTX ends with a zero. A fat binary states its length.
Its wrapper, which `nvcc` puts into a program, says where the fat binary lies. The wrapper of
relocatable device code (`nvcc -rdc=true`) has an array of fat binaries, one of each source file.
"""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cudasync.softgpu.abi.marshalling.pointers import get_bytes, get_text, get_u32, get_u64, need
from cudasync.softgpu.core.driver_types.result_codes import (
    FILE_NOT_FOUND,
    INVALID_IMAGE,
    DriverFailure,
)
from cudasync.softgpu.core.fat_binaries import is_container, size_of
from cudasync.softgpu.core.fat_binaries.container import HEADER_BYTES, MAGIC
from cudasync.softgpu.core.memory.host_pages import read

if TYPE_CHECKING:
    from cudasync.softgpu.core.driver_types.compute_capability import Capability

_WRAPPER_MAGIC: Final = 0x466243B1
_WRAPPER_BYTES: Final = 24
_MOST_BYTES: Final = 1 << 30
# The layout of __fatBinC_Wrapper_t, in CUDA's fatbinary_section.h.
_VERSION_AT, _DATA_AT, _OBJECTS_AT = 4, 8, 16
_ALONE, _RELOCATABLE = 1, 2
_MOST_OBJECTS: Final = 1 << 16
_MAGICS: Final = (MAGIC.to_bytes(4, "little"), _WRAPPER_MAGIC.to_bytes(4, "little"))


def image_at(address: int, capability: Capability) -> bytes:
    """The module at an address: PTX, a fat binary, or the text of something else up to a zero.

    Relocatable device code is linked for the capability.
    """
    need(address, 1)
    if ctypes.string_at(address, 1) not in (_MAGICS[0][:1], _MAGICS[1][:1]):
        return get_bytes(address)
    magic = get_u32(address)
    if magic == _WRAPPER_MAGIC:
        containers = containers_at(address)
        if get_u32(address + _VERSION_AT) == _RELOCATABLE:
            # Imported late, because few programs link.
            from cudasync.softgpu.core.linking.relocatable_code import link_objects

            return link_objects(containers, capability)
        return containers[0]
    return _container_at(address) if magic == MAGIC else get_bytes(address)


def containers_at(wrapper: int) -> list[bytes]:
    """The fat binaries of a wrapper: one, or those of the files of relocatable device code."""
    need(wrapper, _WRAPPER_BYTES)
    version = get_u32(wrapper + _VERSION_AT)
    if version == _RELOCATABLE:
        return [_container_at(each) for each in _objects(get_u64(wrapper + _OBJECTS_AT))]
    data = get_u64(wrapper + _DATA_AT)
    if version != _ALONE or not data:
        raise DriverFailure(INVALID_IMAGE, f"the wrapper of a fat binary has version {version}")
    return [_container_at(data)]


def _objects(array: int) -> list[int]:
    """The addresses in an array that ends with a zero."""
    found: list[int] = []
    while len(found) < _MOST_OBJECTS:
        place = array + 8 * len(found)
        need(place, 8)
        address = get_u64(place)
        if not address:
            return found
        found.append(address)
    raise DriverFailure(INVALID_IMAGE, "the array of relocatable device code has no end")


def _container_at(address: int) -> bytes:
    need(address, HEADER_BYTES)
    header = ctypes.string_at(address, HEADER_BYTES)
    size = size_of(header) if is_container(header) else 0
    if not size:
        raise DriverFailure(INVALID_IMAGE, "the wrapper of a fat binary leads to no fat binary")
    found = read(address, size) if size <= _MOST_BYTES else None
    if found is None:
        raise DriverFailure(
            INVALID_IMAGE, f"the fat binary is damaged: there are no {size} bytes at {address:#x}"
        )
    return found


def file_at(path: int) -> bytes:
    """The bytes of the file whose name is at `path`; FILE_NOT_FOUND if it cannot be read."""
    name = get_text(path)
    try:
        data = Path(name).read_bytes()
    except OSError as problem:
        raise DriverFailure(FILE_NOT_FOUND, str(problem)) from None
    return data if is_container(data) else data.rstrip(b"\0")
