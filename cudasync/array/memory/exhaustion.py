"""Floor 4, memory. Steps to find memory when a device has none left, before a refusal.

After each step the allocation is tried again. The steps: free the cache of the device; wait for
frees that wait for a last use, the oldest first; collect cycles of garbage and repeat both; wait
for all work of the device. Inside of an op's function it waits only for work that can end before
the op does, and never for the whole device.
"""

from __future__ import annotations

import gc
from contextlib import suppress
from typing import TYPE_CHECKING

from cudasync.array.memory.free_lists import empty_pools
from cudasync.array.memory.holdings import holdings_of
from cudasync.engine import current
from cudasync.engine.waiters import wait_for
from cudasync.errors import CudaError, DeadlockError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cudasync.driver import Device, DeviceBuffer

# CUDA_ERROR_OUT_OF_MEMORY.
OUT_OF_MEMORY = 2


def allocated(
    device: Device,
    size_bytes: int,
    allocate: Callable[[], DeviceBuffer],
    reap: Callable[[], None],
) -> DeviceBuffer:
    """The result of `allocate`. `reap` pushes the frees of arrays that died since.

    Raises OutOfMemoryError, with a table of the holders of memory, if no step helps.
    """
    try:
        return allocate()
    except CudaError as error:
        if error.code != OUT_OF_MEMORY:
            raise
        # Not the error itself: it refers to this frame, and so to everything that its callers hold.
        call = error.call
    if size_bytes <= device.memory().total_bytes:
        for _ in _remedies(device, size_bytes, reap):
            try:
                return allocate()
            except CudaError as error:
                if error.code != OUT_OF_MEMORY:
                    raise
    # Imported late, because few programs exhaust a device.
    from cudasync.array.memory.table import refusal

    raise refusal(call, device, size_bytes) from None


def _remedies(device: Device, size_bytes: int, reap: Callable[[], None]) -> Iterator[None]:
    """Free memory step by step; after each step an allocation is worth a try."""
    for finds in (_nothing, gc.collect):
        # Arrays in cycles of garbage are dead, but not collected yet: for example in a failed op's
        # frames.
        finds()
        empty_pools(device.ordinal)
        reap()
        yield
        yield from _frees(device, size_bytes)
    if not current.is_in_op():
        with suppress(DeadlockError):
            device.synchronize()
        yield


def _frees(device: Device, size_bytes: int) -> Iterator[None]:
    """Wait for pending frees, the oldest first, until enough memory may have come back."""
    found = 0
    for holding in holdings_of(device).all():
        free = holding.pending
        if free is None:
            continue
        try:
            # This wait reports no failure: the failure does not concern this caller.
            wait_for(free, None, caller_raises=False)
        except DeadlockError:
            continue
        found += holding.buffer.size_bytes
        if found >= size_bytes:
            yield
    if 0 < found < size_bytes:
        yield


def _nothing() -> None:
    """The first pass collects nothing."""
