"""Cellar. Poison: the contents of memory that nobody has written, or that was freed.

Poison is two bytes, repeated. Any aligned element of f16, bf16, f32, f64 and e5m2 reads as a quiet
NaN (in e4m3 each second byte does). So a sum that begins in `empty` memory is NaN, not a plausible
number. As integers, the words are unlikely: 0x7ffd, 0x7ffd7ffd and so on. Poison does not show
every mistake: a minimum of integers, or `max` and `min` of floats, which skip a NaN, still hide
unwritten memory.

Managed memory is zero when new, as with a driver, unless reads of unwritten memory are checked.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from typing import Final

WORD: Final = 0x7FFD
PATTERN: Final = WORD.to_bytes(2, "little")
_CHUNK_BYTES: Final = 256 << 10
# One more element, for fills that begin at an odd address.
_CHUNK = ctypes.create_string_buffer(PATTERN * (_CHUNK_BYTES // 2 + 1))
_SOURCE: Final = ctypes.addressof(_CHUNK)
# Above this, pages of freed memory are dropped.
_MOST_TOUCHED_BYTES: Final = 64 << 20
# Above this, pages of fresh memory are not touched.
_MOST_FILLED_BYTES: Final = 256 << 20
_STRETCH_BYTES: Final = 4 << 20
_MAP_FIXED: Final = 0x10
_MAP_NORESERVE: Final = 0x4000

_libc = ctypes.CDLL(None, use_errno=True)
_mmap = _libc.mmap
_mmap.restype = ctypes.c_void_p
_mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long)
# Its failure is no failure: a system without huge pages has small ones.
_madvise = _libc.madvise
_madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
# A file in memory with one stretch of poison, made at the first large fill. If several threads
# make one at once, the first in the list is used.
_file: list[int] = []


def poison(address: int, size_bytes: int) -> None:
    """Fill memory with poison."""
    source = _SOURCE + (address & 1)
    while size_bytes > _CHUNK_BYTES:
        ctypes.memmove(address, source, _CHUNK_BYTES)
        address += _CHUNK_BYTES
        size_bytes -= _CHUNK_BYTES
    ctypes.memmove(address, source, size_bytes)


def poison_pages(address: int, size_bytes: int) -> None:
    """Fill memory that is private to this process with poison; its pages are dropped.

    Pages of large blocks are not touched. Instead, the file is mapped over them: a reader finds
    poison, and a writer gets a page of its own. So a gigabyte takes some milliseconds, and only
    written pages take memory.
    """
    if size_bytes <= _MOST_TOUCHED_BYTES:
        poison(address, size_bytes)
        return
    first, behind = _whole_pages(address, size_bytes)
    poison(address, first - address)
    poison(behind, address + size_bytes - behind)
    descriptor = _file_of_poison()
    for start in range(first, behind, _STRETCH_BYTES):
        length = min(_STRETCH_BYTES, behind - start)
        if not _map_over(start, length, descriptor):
            # The system allows no more mappings, so the memory itself is filled.
            poison(start, length)


def poison_fresh(address: int, size_bytes: int) -> None:
    """Fill memory that is about to be used with poison; it is private to this process.

    A block that may well be written whole gets huge pages, and is filled: a first write to a page
    of the file costs three times as much. Pages of the largest blocks are not touched.
    """
    if _MOST_TOUCHED_BYTES < size_bytes <= _MOST_FILLED_BYTES:
        first, behind = _whole_pages(address, size_bytes)
        _map_over(first, behind - first, None)
        poison(address, size_bytes)
    else:
        poison_pages(address, size_bytes)


def zero_pages(address: int, size_bytes: int) -> None:
    """Fill memory that is private to this process with zeros; its pages are dropped.

    As with poison, pages of large blocks are not touched: fresh ones are mapped over them.
    """
    if size_bytes <= _MOST_TOUCHED_BYTES:
        ctypes.memset(address, 0, size_bytes)
        return
    first, behind = _whole_pages(address, size_bytes)
    ctypes.memset(address, 0, first - address)
    ctypes.memset(behind, 0, address + size_bytes - behind)
    if not _map_over(first, behind - first, None):
        ctypes.memset(first, 0, behind - first)


def _whole_pages(address: int, size_bytes: int) -> tuple[int, int]:
    """The start of the first page that begins in a block, and the end of the last in it."""
    page = mmap.PAGESIZE
    return -(-address // page) * page, (address + size_bytes) // page * page


def _map_over(start: int, size_bytes: int, descriptor: int | None) -> bool:
    """Map a file, or fresh pages, over pages; False if the system refuses."""
    rights = mmap.PROT_READ | mmap.PROT_WRITE
    flags = mmap.MAP_PRIVATE | _MAP_FIXED | _MAP_NORESERVE
    if descriptor is None:
        flags |= mmap.MAP_ANONYMOUS
    file = -1 if descriptor is None else descriptor
    found: int | None = _mmap(start, size_bytes, rights, flags, file, 0)
    if found != start:
        return False
    if descriptor is None:
        _madvise(start, size_bytes, mmap.MADV_HUGEPAGE)
    return True


def _file_of_poison() -> int:
    if not _file:
        descriptor = os.memfd_create("cudasync poison")
        os.write(descriptor, PATTERN * (_STRETCH_BYTES // 2))
        _file.append(descriptor)
        if _file[0] != descriptor:
            os.close(descriptor)
    return _file[0]
