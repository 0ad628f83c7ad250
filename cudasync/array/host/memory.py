"""Floor 4, host. The CPU as a device, and bytes of its memory for arrays."""

from __future__ import annotations

import os
from collections import deque
from sys import getrefcount
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from cudasync.array.handed import Handed
from cudasync.array.memory.limits import check_size
from cudasync.driver.interop import DLPACK_CPU
from cudasync.engine.hazards.variable import resolve_one

if TYPE_CHECKING:
    from cudasync.array.elementwise.layouts import Layout


class HostMemory(NamedTuple):
    """How many bytes the machine has. The system may lend more than that; an array never is."""

    total_bytes: int


class Cpu:
    """The device of arrays on the CPU; equal to the word "cpu"."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return other is self or other == "cpu"

    def __hash__(self) -> int:
        return hash("cpu")

    def __repr__(self) -> str:
        return "cpu"

    def memory(self) -> HostMemory:
        """What the machine has."""
        return HostMemory(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))

    def __reduce__(self) -> str:
        return "CPU"


CPU = Cpu()

_MOST_SMALL = 4096
_ROUNDED = 64
_MOST_IDLE = 64
# By size, in units of `_ROUNDED`. A deque, since a finaliser may put something there.
_IDLE: list[deque[tuple[np.ndarray[Any, Any], int]]] = [
    deque() for _ in range(_MOST_SMALL // _ROUNDED + 1)
]


class _Held:
    __slots__ = ("bytes",)

    bytes: Any


def _references() -> int:
    """What `getrefcount` says of an attribute that nobody else has."""
    held = _Held()
    held.bytes = np.empty(1, np.uint8)
    return getrefcount(held.bytes)


_ALONE = _references()


class HostBytes:
    """Ordinary memory of the process, for one array and its views."""

    __slots__ = ("bytes", "handed", "ptr")

    device = only_device = CPU
    dlpack_device = (DLPACK_CPU, 0)
    life = None

    def __init__(self, size_bytes: int) -> None:
        self.handed = Handed()
        self.bytes = np.empty(size_bytes, np.uint8)
        # So that the engine hears of its end: what comes to lie there is no heir to its failures.
        self.ptr = resolve_one(self.bytes, "writes").start


class SmallBytes(HostBytes):
    """The same for few bytes that an op overwrites whole before anybody reads them: they go on to
    the next result. For what the engine has to be told of new memory costs more than such an op."""

    __slots__ = ()

    def __init__(self, size_bytes: int) -> None:
        size = -(-size_bytes // _ROUNDED) * _ROUNDED
        try:
            self.bytes, self.ptr = _IDLE[size // _ROUNDED].pop()
            self.handed = Handed()
        except IndexError:
            super().__init__(size)

    def __del__(self) -> None:
        try:
            # Neither an op to come has them, nor a view that was handed out.
            if getrefcount(self.bytes) == _ALONE:
                idle = _IDLE[self.bytes.size // _ROUNDED]
                if len(idle) < _MOST_IDLE:
                    idle.append((self.bytes, self.ptr))
        except AttributeError:
            # It was never made: there was no memory.
            return


def view_of(array: Any) -> np.ndarray[Any, Any]:
    """NumPy's view of an array on the CPU, for ops that declare what they do with it."""
    memory = array._allocation
    place = array.ptr - memory.ptr
    try:
        return np.ndarray(array.shape, array.dtype, memory.bytes, place, array.strides)
    except ValueError:
        # A view without elements may begin behind the end of its memory.
        if array.size:
            raise
        return np.empty(array.shape, array.dtype)


def bytes_for(layout: Layout) -> HostBytes:
    """New memory for an array of this layout; MemoryError where there is none."""
    check_size(layout.shape, layout.nbytes, layout.device)
    return HostBytes(layout.nbytes)


def bytes_of_result(layout: Layout) -> HostBytes:
    """As `bytes_for`, for an array that the next op on it overwrites whole."""
    size = layout.nbytes
    return SmallBytes(size) if size <= _MOST_SMALL else bytes_for(layout)
