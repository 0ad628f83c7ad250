"""A new op reads memory that failed before a device reset and was then allocated again.

This runs in its own process, because the allocator would reuse the memory of other tests first.
"""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING, Any

import numpy as np

import cudasync as cs
from cudasync.driver.memory.allocations import ALLOCATIONS

if TYPE_CHECKING:
    from collections.abc import Sequence

SIZE = 4096
PATIENCE_S = 60


def fail(*_: object) -> None:
    raise ValueError("as asked")


def make(kind: str, device: cs.Device) -> tuple[Any, int]:
    """Allocate memory of that kind; return the memory and its address."""
    if kind == "pinned":
        array = cs.PinnedBuffer(SIZE, device).view(SIZE, np.uint8)
        return array, array.ctypes.data
    if kind == "buffer":
        buffer = cs.DeviceBuffer(SIZE, device)
        return buffer, buffer.ptr
    array = cs.empty(SIZE, np.uint8, device=device)
    return array, array.ptr


def until_handed_out_again(kind: str, device: cs.Device, addresses: Sequence[int]) -> Any:
    """Allocate until memory lies at one of those freed addresses; None if none does."""
    kept = []
    for _ in range(40):
        # The software GPU holds freed memory back until much more has been freed.
        cs.DeviceBuffer(64 << 20, device).close()
        for _ in range(100):
            thing, at = make(kind, device)
            if any(at <= address < at + SIZE for address in addresses):
                return thing
            kept.append(thing)
    return None


def main(kind: str, order: str) -> None:
    is_planned = order == "planned"
    device = cs.Device(0)
    gate = threading.Event()
    with cs.Engine(workers=1) as engine:
        # Many, because another owner may get one of the addresses for good.
        olds, addresses = zip(*[make(kind, device) for _ in range(50)], strict=True)
        # While the only worker is held, the op is in the log but in no map.
        if not is_planned:
            engine.push(lambda: gate.wait(PATIENCE_S))
        broken = engine.push(fail, writes=olds)
        if is_planned:
            broken.exception(PATIENCE_S)
        device.reset()
        new = until_handed_out_again(kind, device, addresses)
        assert new is not None or not device.is_software
        gate.set()
        if new is not None:
            assert engine.push(lambda: "read", reads=[new]).result(PATIENCE_S) == "read"
        assert isinstance(broken.exception(PATIENCE_S).cause, ValueError)
        engine.clear_errors()
    device.reset()
    print("read")


def without_pushes() -> None:
    """Print how many of eight allocations wrote into the log of a program without pushes."""
    log = ALLOCATIONS.tells.__self__.log  # type: ignore[union-attr]
    cs.zeros(4).numpy()
    cs.waitall()
    end = log.end
    kept = [cs.PinnedBuffer(SIZE) for _ in range(4)] + [cs.DeviceBuffer(SIZE) for _ in range(4)]
    print(log.end - end, "of", len(kept))


if __name__ == "__main__":
    main(*sys.argv[1:]) if sys.argv[1:] else without_pushes()
