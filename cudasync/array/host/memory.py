"""Floor 4, host. The CPU as a device, and bytes of its memory for arrays."""

from __future__ import annotations

import os
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


def view_of(array: Any) -> np.ndarray[Any, Any]:
    """NumPy's view of an array on the CPU, for ops that declare what they do with it."""
    memory = array._allocation
    place = array.ptr - memory.ptr
    return np.ndarray(array.shape, array.dtype, memory.bytes, place, array.strides)


def bytes_for(layout: Layout) -> HostBytes:
    """New memory for an array of this layout; MemoryError where there is none."""
    check_size(layout.shape, layout.nbytes, layout.device)
    return HostBytes(layout.nbytes)
