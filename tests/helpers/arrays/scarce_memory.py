"""A device with little memory: the rest of it is taken, by a buffer that arrays know nothing of."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

import cudasync as cs

ROOM = 48 << 20


@contextmanager
def little_memory(device: cs.Device, room: int = ROOM) -> Iterator[None]:
    """Inside, so much is left of the device's memory for arrays."""
    settle()
    # The driver keeps what was freed a while; that counts as free.
    ballast = cs.DeviceBuffer(device.memory().free_bytes - room, device)
    try:
        yield
    finally:
        ballast.close()


def settle() -> None:
    """Free all that nobody uses, and wait for that."""
    gc.collect()
    cs.waitall()
    cs.empty_cache()
    cs.waitall()
