"""Cellar. Which bytes of a block's shared memory, and of its threads' local memory, are written.

Each slot, which has one block at a time, has a *state*: a mark for each byte of both windows, 1
where it is written, and a row for each PTX line that has read a byte that was not. A block that is
not the one before begins with no marks, which the first access of it sees to. Compiled code
(`jit/checks/initialisation_calls.py`) does all of this; only what is compiled to be recorded can,
and only the vector lowering does.

Calls of a device function have the same local memory, one after the other: what an earlier call
wrote there counts as written.
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
    # The block that the marks are of; none at first.
    X = auto()
    Y = auto()
    Z = auto()
    # What the system keeps at LOW counts as written.
    RESERVED = auto()
    COUNT = auto()
    ROWS = auto()


@unique
class Row(IntEnum):
    """Words of a row: the first read by a line of what was not written."""

    LINE = 0
    ADDRESS = auto()
    SIZE = auto()
    THREAD = auto()
    X = auto()
    Y = auto()
    Z = auto()


MOST_ROWS: Final = 32
_NO_BLOCK: Final = 2**64 - 1


class EarlyRead(NamedTuple):
    """A read of a window's bytes that nobody had written. `offset` is that in shared memory, or in
    the local memory of the thread, whose linear index in the block is given."""

    line: int
    is_shared: bool
    offset: int
    size_bytes: int
    thread: int
    block: tuple[int, int, int]


class Window(NamedTuple):
    """Where a slot has its shared memory and that of its threads, which follows."""

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
        words[State.X] = _NO_BLOCK
        words[State.RESERVED] = window.reserved_bytes
        self._kept.append((window, words, marks))
        return ctypes.addressof(words)

    def _rows(self) -> Iterator[tuple[Window, list[int]]]:
        for window, words, _ in self._kept:
            for place in range(words[State.COUNT]):
                start = State.ROWS + place * len(Row)
                yield window, words[start : start + len(Row)]

    def early(self) -> Iterator[EarlyRead]:
        """What was read and not written, of each line once for each slot."""
        for window, (line, address, size, thread, x, y, z) in self._rows():
            is_shared = address < window.shared + window.shared_bytes
            offset = address - (window.shared if is_shared else window.local)
            if not is_shared and window.thread_bytes:
                offset %= window.thread_bytes
            yield EarlyRead(line, is_shared, offset, size, thread, (x, y, z))
