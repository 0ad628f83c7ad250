"""Floor 4, memory. Refuses arrays that no device can hold, before anything is pushed."""

from __future__ import annotations

from typing import Any

# Below this, the device is not asked.
_SURELY_FITS = 1 << 28


def check_size(shape: tuple[int, ...], size_bytes: int, device: Any) -> None:
    """MemoryError for more bytes than the device has in all."""
    if size_bytes < _SURELY_FITS:
        return
    total = device.memory().total_bytes
    if size_bytes > total:
        raise MemoryError(
            f"an array of shape {shape} takes {size_bytes} bytes, {device!r} has {total}: "
            "process it in parts"
        )
