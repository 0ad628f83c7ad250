"""A device with little memory: a buffer that arrays do not know of takes the rest."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

import cudasync as cs

ROOM = 48 << 20


@contextmanager
def little_memory(device: cs.Device, room: int = ROOM) -> Iterator[None]:
    """Inside the block, arrays can use `room` bytes of the device's memory."""
    settle()
    # The driver holds freed memory for a while. That memory counts as free.
    ballast = cs.DeviceBuffer(device.memory().free_bytes - room, device)
    try:
        yield
    finally:
        ballast.close()


def settle() -> None:
    """Free all unused memory, and wait until it is free."""
    gc.collect()
    cs.waitall()
    cs.empty_cache()
    cs.waitall()
