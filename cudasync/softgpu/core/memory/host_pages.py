"""Cellar. Checks that a host address is mapped before it is touched, so that nothing crashes.

A real driver crashes on a wild host pointer in a copy; here such a pointer is INVALID_VALUE.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cudasync.softgpu.core.driver_types.result_codes import INVALID_VALUE, DriverFailure

if TYPE_CHECKING:
    from collections.abc import Sequence

_PAGE_MASK: Final = mmap.PAGESIZE - 1
_MS_ASYNC: Final = 1

# On Linux, msync with MS_ASYNC only walks the mappings of a range: ENOMEM if there is a hole. It
# does not check protection.
_msync = ctypes.CDLL(None).msync
_msync.argtypes = [ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int]


def is_mapped(address: int, size_bytes: int) -> bool:
    """True if every page of the range is mapped by the process."""
    if address + size_bytes >= 1 << 64:
        return False
    start = address & ~_PAGE_MASK
    return bool(_msync(start, address + size_bytes - start, _MS_ASYNC) == 0)


# Copies memory, with an error where it may not be read, in place of a signal. It is slower than
# msync, which walks the mappings alone.
_copy = ctypes.CDLL(None, use_errno=True).process_vm_readv
_copy.argtypes = [ctypes.c_int, *[ctypes.c_size_t] * 5]
_copy.restype = ctypes.c_ssize_t
# A container may forbid the call.
_FORBIDDEN: Final = (errno.EPERM, errno.ENOSYS)


def read(address: int, size_bytes: int) -> bytes | None:
    """A copy of the range; None if the process may not read all of it.

    Memory may be mapped that nobody may read: the rest of a thread's heap, the guard of a stack.
    """
    if not is_mapped(address, size_bytes):
        return None
    found = ctypes.create_string_buffer(size_bytes)
    # Two structures iovec: where to, and where from.
    spans = (ctypes.c_size_t * 4)(ctypes.addressof(found), size_bytes, address, size_bytes)
    here = ctypes.addressof(spans)
    count = _copy(os.getpid(), here, 1, here + 2 * ctypes.sizeof(ctypes.c_size_t), 1, 0)
    if count == size_bytes:
        return found.raw
    if count < 0 and ctypes.get_errno() in _FORBIDDEN:
        return ctypes.string_at(address, size_bytes)
    return None


_PAGE_BITS: Final = 12
_MOST_SEEN: Final = 256
# Pages that were mapped at the last check, because most pointers are to the same few pages.
_seen: set[int] = set()


def need(address: int, size_bytes: int = 8) -> None:
    """Refuse a pointer to unmapped memory, before anything irreversible is done."""
    page = address >> _PAGE_BITS
    if page not in _seen or (address + size_bytes - 1) >> _PAGE_BITS != page:
        _look(address, size_bytes)


def need_all(addresses: Sequence[int]) -> None:
    """Refuse pointers if one of them points to unmapped memory."""
    if not _seen.issuperset([address >> _PAGE_BITS for address in addresses]):
        for address in addresses:
            need(address, 1)


def _look(address: int, size_bytes: int) -> None:
    if not address:
        raise DriverFailure(INVALID_VALUE, "a pointer is null")
    if size_bytes and not is_mapped(address, size_bytes):
        raise DriverFailure(
            INVALID_VALUE,
            f"{size_bytes} bytes at {address:#x} are not mapped memory of the process",
        )
    if len(_seen) >= _MOST_SEEN:
        _seen.clear()
    if size_bytes:
        _seen.add(address >> _PAGE_BITS)


_code: set[int] = set()


def is_code(address: int) -> bool:
    """True if the process may execute code at an address."""
    if address in _code:
        return True
    for line in Path("/proc/self/maps").read_text().splitlines():
        span, rights, *_ = line.split(maxsplit=2)
        start, _, end = span.partition("-")
        if "x" in rights and int(start, 16) <= address < int(end, 16):
            _code.add(address)
            return True
    return False
