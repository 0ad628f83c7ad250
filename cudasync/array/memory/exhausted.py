"""Floor 4, memory. What is done when a device has no memory left, before anybody is refused.

In this order, with a try after each: the cache of the device is freed; frees that wait for a last
use are waited for, the oldest first; cycles of garbage are collected, and the same once more; all
work of the device is waited for. Inside of an op's function only
what can end before the op does is waited for, and never all of the device.
"""

from __future__ import annotations

import gc
from contextlib import suppress
from typing import TYPE_CHECKING

from cudasync.array.memory.holdings import holdings_of
from cudasync.array.memory.idle import empty_pools
from cudasync.array.memory.table import OUT_OF_MEMORY, refusal
from cudasync.engine import current
from cudasync.engine.waiting import wait_for
from cudasync.errors import CudaError, DeadlockError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cudasync.driver import Device, DeviceBuffer


def allocated(
    device: Device,
    size_bytes: int,
    allocate: Callable[[], DeviceBuffer],
    reap: Callable[[], None],
) -> DeviceBuffer:
    """What `allocate` gives. `reap` pushes the frees of what died since.

    Raises OutOfMemoryError, with a table of what holds memory, where all is of no use.
    """
    try:
        return allocate()
    except CudaError as error:
        if error.code != OUT_OF_MEMORY:
            raise
        # Not the error itself: it refers to this frame, and so to all that its callers hold.
        call = error.call
    if size_bytes <= device.memory().total_bytes:
        for _ in _remedies(device, size_bytes, reap):
            try:
                return allocate()
            except CudaError as error:
                if error.code != OUT_OF_MEMORY:
                    raise
    raise refusal(call, device, size_bytes) from None


def _remedies(device: Device, size_bytes: int, reap: Callable[[], None]) -> Iterator[None]:
    """Find memory that may be had, step by step; after each it is worth a try."""
    for finds in (_nothing, gc.collect):
        # Arrays in cycles of garbage are dead, and nobody has noticed: those of a failed op's
        # frames, for one.
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
    """Wait for what is about to be freed, the oldest first, until enough may have come back."""
    found = 0
    for holding in holdings_of(device).all():
        free = holding.pending
        if free is None:
            continue
        try:
            # Nobody is told of a failure by that: it is no affair of this caller.
            wait_for(free, None, caller_raises=False)
        except DeadlockError:
            continue
        found += holding.buffer.size_bytes
        if found >= size_bytes:
            yield
    if 0 < found < size_bytes:
        yield


def _nothing() -> None:
    """Nothing is to be found by that."""
