"""Floor 3, control flow. A flag: the one element that decides whether a block runs."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from cudasync.driver import Device
from cudasync.engine.hazards.variable import resolve_one

if TYPE_CHECKING:
    from cudasync.engine.hazards.interval_map import Region
    from cudasync.graph.retargeting import Aim

# The largest integer.
MOST_BYTES = 8


@dataclass(frozen=True, slots=True)
class Flag:
    """The place of a flag; the flag is true if any of its bytes is not 0."""

    region: Region
    # None for memory of the process.
    device: Device | None
    # The array, kept alive with the flag.
    array: Any

    @classmethod
    def of(cls, array: Any) -> Flag:
        """The flag in `array`.

        Raises TypeError for anything but an array of integers or bools, ValueError unless it has
        exactly one element.
        """
        dtype = getattr(array, "dtype", None)
        if dtype is None or not hasattr(array, "size"):
            raise TypeError(
                f"a flag is an array with one element, whose value each launch reads, not "
                f"{type(array).__name__}"
            )
        if np.dtype(dtype).kind not in "biu":
            raise TypeError(
                f"a flag has an integer dtype or bool, not {dtype}: compare it, as in x > 0"
            )
        if array.size != 1:
            raise ValueError(f"a flag has one element, not {array.size}: use xp.any or xp.all")
        device = getattr(array, "device", None)
        return cls(
            resolve_one(array, "flag"), device if isinstance(device, Device) else None, array
        )

    def aimed(self, aim: Aim) -> Flag:
        """The flag in its place after aiming, on the same device."""
        return replace(self, region=aim.region(self.region))

    def read(self) -> bool:
        """Its current value, if it is in memory of the process."""
        return truth(self.region.start, self.region.end - self.region.start)


def truth(address: int, size_bytes: int) -> bool:
    """True if any of these bytes of the process is not 0."""
    return any(ctypes.string_at(address, size_bytes))
