"""Floor 1. Page-locked ("pinned") host memory, which the device copies from and to by itself.

Its copies run beside the host's work, and a kernel may use its address directly. It is slow to
allocate and occupies physical memory permanently, so allocate once and reuse.

The memory lives as long as any array upon it: arrays refer to the memory, not to the PinnedBuffer.
There is no cycle, so that the last reference frees the memory without the garbage collector.
"""

from __future__ import annotations

import ctypes
import math
import operator
import weakref
from typing import TYPE_CHECKING, Any, SupportsIndex

import numpy as np
from cuda.bindings import driver

from cudasync.atomic import Roll
from cudasync.driver.memory.allocations import ALLOCATIONS
from cudasync.driver.memory.buffer import checked_size
from cudasync.driver.ownership.handles import Owned
from cudasync.driver.ownership.unpicklable import unpicklable
from cudasync.driver.streams.current_streams import given_device
from cudasync.errors import ClosedError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import DTypeLike, NDArray

    from cudasync.driver.device import DeviceLike

# Usable from every context, and mapped into the device's address space.
_FLAGS = 0x1 | 0x2


@unpicklable("send a view of the buffer, buffer.view(shape, dtype)")
class PinnedBuffer:
    """Page-locked host memory, uninitialised. (cuMemHostAlloc, portable and mapped)

    It belongs to no device, but its allocation needs one: `device` only selects the context of the
    call. A size of 0 is allowed. Raises CudaError if no more is available, and MemoryError for
    more bytes than there are addresses.
    """

    __slots__ = ("__weakref__", "_blocks", "_owned", "_ptr", "size_bytes")

    def __init__(self, size_bytes: SupportsIndex, device: DeviceLike | None = None) -> None:
        size = checked_size(size_bytes)
        context = given_device(device).context
        address = int(context.allocate("cuMemHostAlloc", driver.cuMemHostAlloc, size or 1, _FLAGS))
        self._owned = Owned(
            context, address, driver.cuMemFreeHost, noun="pinned buffer", blocking=True
        )
        self._ptr = address
        ALLOCATIONS.note(self._owned, address, size, None)
        self.size_bytes = size
        # The base objects of arrays upon the memory, which keep it alive. Any thread adds its own.
        self._blocks: Roll[weakref.ref[Any]] = Roll()

    @property
    def ptr(self) -> int:
        """The address, on the host and on devices alike. Raises ClosedError once closed."""
        self._owned.get()
        return self._ptr

    @property
    def is_closed(self) -> bool:
        return self._owned.is_closed

    def view(
        self, shape: Sequence[int] | int, dtype: DTypeLike, *, offset_bytes: int = 0
    ) -> NDArray[Any]:
        """A NumPy array upon the memory, which it keeps alive.

        Raises ValueError if the array would reach past the buffer.
        """
        if self._owned.is_closed:
            raise ClosedError("the pinned buffer is closed: make another")
        kind = np.dtype(dtype)
        if kind.hasobject:
            raise ValueError("Python objects cannot be in pinned memory: give a numeric dtype")
        extents = (shape,) if isinstance(shape, int) else tuple(shape)
        size = math.prod(extents) * kind.itemsize
        end = offset_bytes + size
        if offset_bytes < 0 or end > self.size_bytes or min(extents, default=0) < 0:
            raise ValueError(
                f"an array of shape {extents} and {kind}, at byte {offset_bytes}, exceeds the "
                f"buffer of {self.size_bytes} bytes"
            )
        if not size:
            return np.empty(extents, kind)
        block: Any = (ctypes.c_ubyte * self.size_bytes).from_address(self.ptr)
        block.owned = self._owned
        self._blocks.strike(_is_gone)
        self._blocks.add(weakref.ref(block))
        return np.frombuffer(block, np.uint8)[offset_bytes:end].view(kind).reshape(extents)

    def close(self) -> None:
        """Free the memory. Closing twice is harmless.

        Waits for all work on the device. Raises ValueError while arrays are still upon the memory.
        (cuMemFreeHost)
        """
        if not all(map(_is_gone, self._blocks.all())):
            raise ValueError("arrays still use this pinned buffer: delete them first")
        self._owned.close()

    def __repr__(self) -> str:
        if self._owned.is_closed:
            return f"<PinnedBuffer of {self.size_bytes} bytes, closed>"
        return f"<PinnedBuffer of {self.size_bytes} bytes at {self._ptr:#x}>"


def _is_gone(block: weakref.ref[Any]) -> bool:
    return block() is None


def pinned_empty(shape: Sequence[int] | int, dtype: DTypeLike = np.float64) -> NDArray[Any]:
    """A NumPy array in page-locked memory, uninitialised; the memory lives as long as it does.

    Copies of such an array run asynchronously: the device may read or write its elements until the
    stream is synchronized.
    """
    extents = (shape,) if isinstance(shape, int) else tuple(operator.index(n) for n in shape)
    if any(extent < 0 for extent in extents):
        raise ValueError(f"the shape {extents} has a negative extent")
    return PinnedBuffer(math.prod(extents) * np.dtype(dtype).itemsize).view(extents, dtype)
