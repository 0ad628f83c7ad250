"""Memory that failed before a reset of its device, handed out again after it: read by a new op.

Run in a process of its own: what other tests freed would be handed out first.
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
    """Memory of that kind, and its address."""
    if kind == "pinned":
        array = cs.PinnedBuffer(SIZE, device).view(SIZE, np.uint8)
        return array, array.ctypes.data
    if kind == "buffer":
        buffer = cs.DeviceBuffer(SIZE, device)
        return buffer, buffer.ptr
    array = cs.empty(SIZE, np.uint8, device=device)
    return array, array.ptr


def until_handed_out_again(kind: str, device: cs.Device, addresses: Sequence[int]) -> Any:
    """Memory of that kind at one of those addresses, which are free; None if none comes."""
    kept = []
    for _ in range(40):
        # On the software GPU, what was freed is kept back until much has been freed since.
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
        # Many: whoever else allocates may be given one of the addresses for good.
        olds, addresses = zip(*[make(kind, device) for _ in range(50)], strict=True)
        # While its one worker is held the op is in the log, and in no map.
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
    """Print how many of eight allocations wrote into the log of a program that pushes nothing."""
    log = ALLOCATIONS.tells.__self__.log  # type: ignore[union-attr]
    cs.zeros(4).numpy()
    cs.waitall()
    end = log.end
    kept = [cs.PinnedBuffer(SIZE) for _ in range(4)] + [cs.DeviceBuffer(SIZE) for _ in range(4)]
    print(log.end - end, "of", len(kept))


if __name__ == "__main__":
    main(*sys.argv[1:]) if sys.argv[1:] else without_pushes()
