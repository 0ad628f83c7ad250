"""Memory that no device has: a MemoryError at the call, which leaves nothing behind."""

from __future__ import annotations

import numpy as np
import pytest

import cudasync as cs
from cudasync import xp
from cudasync.array import allocation
from cudasync.driver import DeviceBuffer

# More than the device has, more than 63 and than 64 bits of bytes, and bytes beyond a product of
# lengths that fit.
SHAPES = [1 << 50, 1 << 60, 1 << 62, 1 << 70, (1 << 40, 1 << 40)]
MAKERS = {
    "empty": cs.empty,
    "zeros": cs.zeros,
    "xp.ones": xp.ones,
    "xp.full": lambda shape: xp.full(shape, 7),
    "operator": lambda shape: xp.broadcast_to(xp.ones(1), shape) + 1,
    "cpu": lambda shape: cs.zeros(shape, device="cpu"),
    "xp.ones cpu": lambda shape: xp.ones(shape, device="cpu"),
}


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("maker", MAKERS)
def test_an_array_larger_than_the_device_is_refused_once(maker, shape):
    with cs.Engine() as engine:
        warm = xp.ones(1)
        warm.wait()
        before = engine.statistics().ops
        with pytest.raises(MemoryError):
            MAKERS[maker](shape)
        # The driver is asked for sizes that it can express; the operator has an operand.
        is_asked = isinstance(shape, int) and shape <= 1 << 60
        assert engine.statistics().ops - before <= (2 if maker == "operator" else is_asked)
        engine.waitall()


@pytest.mark.parametrize("kind", [cs.DeviceBuffer, cs.PinnedBuffer])
def test_a_buffer_of_more_bytes_than_there_are_addresses_is_a_memory_error(kind):
    for size in (1 << 63, 1 << 64, 1 << 70):
        with pytest.raises(MemoryError, match=str(size)):
            kind(size)
    with pytest.raises(MemoryError):
        cs.DeviceBuffer(1 << 70, stream=cs.Stream())
    with pytest.raises(MemoryError):
        cs.pinned_empty(1 << 70, np.uint8)


def test_an_allocation_that_fails_in_any_way_is_told_once(monkeypatch):
    def failing(*arguments, **options):
        raise OverflowError("too large")

    monkeypatch.setattr(allocation, "DeviceBuffer", failing)
    with cs.Engine() as engine:
        with pytest.raises(OverflowError, match="too large"):
            cs.empty(4)
        engine.waitall()
    monkeypatch.setattr(allocation, "DeviceBuffer", DeviceBuffer)
