"""Cellar. Initialisation windows: the written bytes of a block's shared and local memory.

Each slot, which has one block at a time, has a *state*. It has a mark for each byte of both
windows, 1 for a written byte, and a row for each PTX line that read an unwritten byte. The first
access of a new block clears the marks. Compiled code (`jit/checks/initialisation_calls.py`) does
all of this, in kernels compiled to be recorded, and only in the vector lowering.

Successive calls of a device function have the same local memory, so bytes that an earlier call
wrote count as written.
"""

from __future__ import annotations

import ctypes
from enum import IntEnum, auto, unique
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator


@unique
class State(IntEnum):
    """Words of a state."""

    # From an address to its mark; both windows lie between LOW and HIGH.
    DISTANCE = 0
    LOW = auto()
    HIGH = auto()
    # The block of the marks, see `block_of`; no block at first.
    BLOCK = auto()
    # The size of the system's memory at LOW, which counts as written.
    RESERVED = auto()
    # The size of the shared memory, and the number of its bytes that may be unwritten.
    SHARED = auto()
    UNWRITTEN = auto()
    COUNT = auto()
    ROWS = auto()


@unique
class Row(IntEnum):
    """Words of a row: the first read of unwritten bytes by a line."""

    LINE = 0
    ADDRESS = auto()
    SIZE = auto()
    THREAD = auto()
    BLOCK = auto()


MOST_ROWS: Final = 32
NO_BLOCK: Final = 2**64 - 1
# A block as one word: x, and y and z from these bits on. Grids have at most 2^31 by 2^16 by 2^16.
Y_BIT, Z_BIT = 31, 47


class EarlyRead(NamedTuple):
    """A read of bytes of a window that nobody had written. `offset` counts in shared memory, or in
    the thread's local memory; `thread` is the thread's linear index in the block."""

    line: int
    is_shared: bool
    offset: int
    size_bytes: int
    thread: int
    block: tuple[int, int, int]


class Window(NamedTuple):
    """The addresses of a slot's shared memory, and of its threads' local memory behind it."""

    shared: int
    shared_bytes: int
    local: int
    local_bytes: int
    thread_bytes: int
    reserved_bytes: int


class Windows:
    """The states of one launch."""

    def __init__(self) -> None:
        self._kept: list[tuple[Window, ctypes.Array[ctypes.c_uint64], object]] = []

    def state_of(self, window: Window) -> int:
        """The address of a fresh state for a slot."""
        words = (ctypes.c_uint64 * (State.ROWS + MOST_ROWS * len(Row)))()
        low, high = window.shared, window.local + window.local_bytes
        marks = (ctypes.c_ubyte * (high - low + 1))()
        words[State.DISTANCE] = (ctypes.addressof(marks) - low) & (2**64 - 1)
        words[State.LOW], words[State.HIGH] = low, high
        words[State.BLOCK] = NO_BLOCK
        words[State.RESERVED] = window.reserved_bytes
        words[State.SHARED] = window.shared_bytes
        self._kept.append((window, words, marks))
        return ctypes.addressof(words)

    def _rows(self) -> Iterator[tuple[Window, list[int]]]:
        for window, words, _ in self._kept:
            for place in range(words[State.COUNT]):
                start = State.ROWS + place * len(Row)
                yield window, words[start : start + len(Row)]

    def early(self) -> Iterator[EarlyRead]:
        """The reads of unwritten bytes, each line once for each slot."""
        for window, (line, address, size, thread, block) in self._rows():
            is_shared = address < window.shared + window.shared_bytes
            offset = address - (window.shared if is_shared else window.local)
            if not is_shared and window.thread_bytes:
                offset %= window.thread_bytes
            yield EarlyRead(line, is_shared, offset, size, thread, block_of(block))


def block_of(word: int) -> tuple[int, int, int]:
    """The index of a block that a word stands for."""
    x, y = word & (1 << Y_BIT) - 1, word >> Y_BIT & (1 << Z_BIT - Y_BIT) - 1
    return x, y, word >> Z_BIT
