"""Floor 4, memory. What no device can hold is refused before anything is pushed."""

from __future__ import annotations

from typing import Any

# Not worth asking the device about.
_SURELY_FITS = 1 << 28


def check_size(shape: tuple[int, ...], size_bytes: int, device: Any) -> None:
    """MemoryError for more bytes than the device has at all."""
    if size_bytes < _SURELY_FITS:
        return
    total = device.memory().total_bytes
    if size_bytes > total:
        raise MemoryError(
            f"an array of shape {shape} takes {size_bytes} bytes, {device!r} has {total} in all: "
            "work on parts of it"
        )
