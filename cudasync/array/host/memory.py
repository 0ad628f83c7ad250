"""Floor 4, host. The CPU as a device, and bytes of its memory for arrays."""

from __future__ import annotations

import os
from sys import getrefcount
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from cudasync.array.interchange.stream_ownership import Handed
from cudasync.array.memory.limits import check_size
from cudasync.driver.interchange.protocols import DLPACK_CPU
from cudasync.engine.hazards.variable import resolve_one

if TYPE_CHECKING:
    from cudasync.array.elementwise.layouts import Layout
    from cudasync.engine.hazards.interval_map import Region


class HostMemory(NamedTuple):
    """The bytes of the machine. The system may lend more than that; no array is larger."""

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
        """The memory of the machine."""
        return HostMemory(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))

    def __reduce__(self) -> str:
        return "CPU"


CPU = Cpu()

# The largest result of an op that runs in its push, with eight bytes an element.
_MOST_SMALL = 8192
# A value that equals the layout of no array.
UNKNOWN: tuple[Any, Any] = (0, None)


class HostBytes:
    """Ordinary memory of the process, for one array and its views."""

    __slots__ = ("bytes", "handed", "known", "ptr")

    device = only_device = CPU
    dlpack_device = (DLPACK_CPU, 0)
    life = None

    # A layout of the whole memory, and NumPy's view for arrays of that layout: making a view takes
    # as long as adding a few numbers. One slot, because two threads may look for two layouts.
    known: tuple[Any, Any]

    def __init__(self, size_bytes: int) -> None:
        self.known = UNKNOWN
        self.handed = Handed()
        self.bytes = np.empty(size_bytes, np.uint8)
        # So that the engine learns of its end: later memory there inherits no failures.
        self.ptr = resolve_one(self.bytes, "writes").start


class SmallBytes(HostBytes):
    """Memory for few bytes that an op overwrites whole before anybody reads them. It goes on to the
    next result of this layout, with its region and view. Telling the engine of new memory would
    cost more than such an op."""

    __slots__ = ("region",)

    region: Region

    def __init__(self, layout: Layout) -> None:
        try:
            self.known, self.ptr, self.region, self.handed = layout.idle.pop()
        except IndexError:
            self.handed = Handed()
            made = np.empty(layout.shape, layout.dtype)
            self.known = layout, made
            self.region = resolve_one(made, "writes")
            self.ptr = self.region.start

    @property
    def bytes(self) -> np.ndarray[Any, Any]:  # type: ignore[override]
        """NumPy's array, which owns the memory."""
        return self.known[1]  # type: ignore[no-any-return]

    def __del__(self) -> None:
        try:
            layout, memory = self.known
            # No op to come refers to it, no view that was handed out, and no other library.
            if getrefcount(memory) == _ALONE and not self.handed.parts:
                layout.idle.append((self.known, self.ptr, self.region, self.handed))
        except AttributeError:
            # `__init__` failed: there was no memory.
            return


def _references() -> int:
    """The `getrefcount` of a `SmallBytes`' memory without other references."""
    known = None, np.empty(1, np.uint8)
    _, memory = known
    return getrefcount(memory)


_ALONE = _references()


def view_of(array: Any) -> np.ndarray[Any, Any]:
    """NumPy's view of an array on the CPU, for ops that declare their accesses."""
    memory, layout = array._allocation, array._layout
    known, view = memory.known
    if known is layout:
        return view  # type: ignore[no-any-return]
    if not array.size:
        # Its address may be behind the end of its memory.
        return np.empty(array.shape, array.dtype)
    held, place = memory.bytes, array.ptr - memory.ptr
    view = np.ndarray(array.shape, array.dtype, held, place, array.strides)
    if memory.known is UNKNOWN and layout is not None and layout.high - layout.low == held.nbytes:
        # It covers all bytes: no other array of this layout lies in the memory.
        memory.known = layout, view
    return view


def bytes_for(layout: Layout) -> HostBytes:
    """New memory for an array of this layout; MemoryError if there is none."""
    check_size(layout.shape, layout.nbytes, layout.device)
    return HostBytes(layout.nbytes)


def is_small(layout: Layout) -> bool:
    """True if memory of results with this contiguous layout is reused for the next result."""
    return 0 < layout.nbytes <= _MOST_SMALL


def bytes_of_result(layout: Layout) -> HostBytes:
    """As `bytes_for`, for an array that the next op on it overwrites whole."""
    return SmallBytes(layout) if is_small(layout) else bytes_for(layout)
