"""Cellar. Is there memory at a host address? Asked before it is touched, so that nothing crashes.

A real driver would die of a wild host pointer in a copy; here it is an INVALID_VALUE.
"""

from __future__ import annotations

import ctypes
import mmap
from typing import Final

_PAGE_MASK: Final = mmap.PAGESIZE - 1
_MS_ASYNC: Final = 1

# On Linux msync with MS_ASYNC does nothing but walk the mappings of a range: ENOMEM if there is
# a hole. Protection is not looked at.
_msync = ctypes.CDLL(None).msync
_msync.argtypes = [ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int]


def is_mapped(address: int, size_bytes: int) -> bool:
    """True if every page of the range is mapped by the process."""
    if address + size_bytes >= 1 << 64:
        return False
    start = address & ~_PAGE_MASK
    return bool(_msync(start, address + size_bytes - start, _MS_ASYNC) == 0)
