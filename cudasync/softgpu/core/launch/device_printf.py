"""Cellar. Output of kernels, as in CUDA: printf on stdout, failed assertions on stderr.

Records are read when a launch has run, inside the call that synchronises with it. The text goes to
the file descriptors themselves, as in C. The buffers of Python and of C are flushed first.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import struct
import sys
from typing import TYPE_CHECKING

from cudasync.softgpu.core.launch.printf_format import formatted
from cudasync.softgpu.interface.printf_buffer import (
    CAPACITY,
    HEADER_BYTES,
    INSIDE,
    RECORD_BYTES,
    Kind,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cudasync.softgpu.core.memory.allocation_table import Allocation
    from cudasync.softgpu.core.memory.memory_manager import MemoryManager

_STDOUT, _STDERR = 1, 2
_flush = ctypes.CDLL(None).fflush
# A string without a terminator is cut here.
_LONGEST = 1 << 16


def drain(output: Allocation, memory: MemoryManager) -> None:
    """Print the records in `output`, and clear it."""
    taken = ctypes.c_uint64.from_address(output.start)
    if not taken.value:
        return
    size = min(taken.value, CAPACITY)
    data = ctypes.string_at(output.start + HEADER_BYTES, size)
    ctypes.memset(output.start, 0, HEADER_BYTES + size)
    for descriptor, text in _texts(data, memory):
        _write(descriptor, text)


def _texts(data: bytes, memory: MemoryManager) -> Iterator[tuple[int, bytes]]:
    position = 0
    while position + RECORD_BYTES <= len(data):
        word, text = struct.unpack_from("<QQ", data, position)
        size, kind = word >> 8, word & 0xFF
        if not RECORD_BYTES <= size <= len(data) - position:
            return
        record = data[position : position + size]
        if kind == Kind.PRINT:
            yield _STDOUT, _printed(_string(text, memory), record, memory)
        else:
            yield _STDERR, _assertion(data, position, text, memory)
        position += size


def _printed(text: bytes, record: bytes, memory: MemoryManager) -> bytes:
    def string_at(address: int) -> bytes:
        if address >= INSIDE:
            return record[address - INSIDE :].partition(b"\0")[0]
        return _string(address, memory)

    return formatted(text, record[RECORD_BYTES:], string_at)


def _assertion(data: bytes, position: int, text: int, memory: MemoryManager) -> bytes:
    coordinates = struct.unpack_from("<6I", data, position + 16)
    file, line, function = struct.unpack_from("<QI4xQ", data, position + RECORD_BYTES)
    block, thread = coordinates[:3], coordinates[3:]
    return (
        b"%s:%d: %s: block: [%d,%d,%d], thread: [%d,%d,%d] Assertion `%s` failed.\n"
        % (
            _string(file, memory), line, _string(function, memory), *block, *thread,
            _string(text, memory),
        )
    )  # fmt: skip


def _string(address: int, memory: MemoryManager) -> bytes:
    """The characters at `address` up to a zero, within their allocation."""
    allocation = memory.table_of(address).find(address)
    if allocation is None or not allocation.is_live:
        return b"(null)"
    length = min(allocation.end - address, _LONGEST)
    return ctypes.string_at(address, length).partition(b"\0")[0]


def _write(descriptor: int, text: bytes) -> None:
    """Write the whole text; a closed descriptor is ignored."""
    stream = sys.stdout if descriptor == _STDOUT else sys.stderr
    with contextlib.suppress(OSError, ValueError):
        if stream is not None:
            stream.flush()
        # Flushes earlier output of C code in the process.
        _flush(None)
        while text:
            text = text[os.write(descriptor, text) :]
