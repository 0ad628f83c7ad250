"""Floor 4, host. The CPU as a device, and bytes of its memory for arrays."""

from __future__ import annotations

import os
from sys import getrefcount
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from cudasync.array.handed import Handed
from cudasync.array.memory.limits import check_size
from cudasync.driver.interchange.protocols import DLPACK_CPU
from cudasync.engine.hazards.variable import resolve_one

if TYPE_CHECKING:
    from cudasync.array.elementwise.layouts import Layout
    from cudasync.engine.hazards.interval_map import Region


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

# What an op that is run where it is pushed makes at most, of eight bytes an element.
_MOST_SMALL = 8192
# What no array has as its layout.
UNKNOWN: tuple[Any, Any] = (0, None)


class HostBytes:
    """Ordinary memory of the process, for one array and its views."""

    __slots__ = ("bytes", "handed", "known", "ptr")

    device = only_device = CPU
    dlpack_device = (DLPACK_CPU, 0)
    life = None

    # A layout of the whole memory and NumPy's view for arrays that have it: making one takes as
    # long as to add a few numbers. In one slot, for two threads may look for two layouts.
    known: tuple[Any, Any]

    def __init__(self, size_bytes: int) -> None:
        self.known = UNKNOWN
        self.handed = Handed()
        self.bytes = np.empty(size_bytes, np.uint8)
        # So that the engine hears of its end: what comes to lie there is no heir to its failures.
        self.ptr = resolve_one(self.bytes, "writes").start


class SmallBytes(HostBytes):
    """The same for few bytes that an op overwrites whole before anybody reads them: they go on to
    the next result of this layout, with all that was worked out about them. For what the engine has
    to be told of new memory costs more than such an op."""

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
        """NumPy's array, which has the memory."""
        return self.known[1]  # type: ignore[no-any-return]

    def __del__(self) -> None:
        try:
            layout, memory = self.known
            # Neither an op to come has it, nor a view that was handed out, nor another library.
            if getrefcount(memory) == _ALONE and not self.handed.parts:
                layout.idle.append((self.known, self.ptr, self.region, self.handed))
        except AttributeError:
            # It was never made: there was no memory.
            return


def _references() -> int:
    """What `getrefcount` says of the memory of a `SmallBytes` that nobody else has."""
    known = None, np.empty(1, np.uint8)
    _, memory = known
    return getrefcount(memory)


_ALONE = _references()


def view_of(array: Any) -> np.ndarray[Any, Any]:
    """NumPy's view of an array on the CPU, for ops that declare what they do with it."""
    memory, layout = array._allocation, array._layout
    known, view = memory.known
    if known is layout:
        return view  # type: ignore[no-any-return]
    if not array.size:
        # It may begin behind the end of its memory.
        return np.empty(array.shape, array.dtype)
    held, place = memory.bytes, array.ptr - memory.ptr
    view = np.ndarray(array.shape, array.dtype, held, place, array.strides)
    if memory.known is UNKNOWN and layout is not None and layout.high - layout.low == held.nbytes:
        # From the first byte to the last: there is no other array of this layout in it.
        memory.known = layout, view
    return view


def bytes_for(layout: Layout) -> HostBytes:
    """New memory for an array of this layout; MemoryError where there is none."""
    check_size(layout.shape, layout.nbytes, layout.device)
    return HostBytes(layout.nbytes)


def is_small(layout: Layout) -> bool:
    """True if results of this layout, which is contiguous, go on to the next one's."""
    return 0 < layout.nbytes <= _MOST_SMALL


def bytes_of_result(layout: Layout) -> HostBytes:
    """As `bytes_for`, for an array that the next op on it overwrites whole."""
    return SmallBytes(layout) if is_small(layout) else bytes_for(layout)
