"""Cellar. Memory for staged copies of a pageable source."""

from __future__ import annotations

import ctypes
import mmap
from contextlib import suppress
from typing import Final

# Above this, pages of the system's are cheaper than the heap: huge, and not zeroed twice.
_MOST_ON_HEAP_BYTES: Final = 4 << 20


def staging_buffer(size_bytes: int) -> ctypes.Array[ctypes.c_char]:
    """So many bytes that belong to one copy."""
    if size_bytes <= _MOST_ON_HEAP_BYTES:
        return ctypes.create_string_buffer(size_bytes)
    pages = mmap.mmap(-1, size_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    # A system without huge pages refuses.
    with suppress(OSError):
        pages.madvise(mmap.MADV_HUGEPAGE)
    return (ctypes.c_char * size_bytes).from_buffer(pages)
