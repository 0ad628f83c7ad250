"""Floor 3, control flow. A flag: the one element whose truth decides what a block does."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from cudasync.driver import Device
from cudasync.engine.hazards.variable import resolve_one

if TYPE_CHECKING:
    from cudasync.engine.hazards.interval_map import Region
    from cudasync.graph.aiming import Aim

# The largest integer.
MOST_BYTES = 8


@dataclass(frozen=True, slots=True)
class Flag:
    """Where a flag is: it is true where any of its bytes is not 0."""

    region: Region
    # None for memory of the process.
    device: Device | None
    # The array, which lives as long as the flag.
    array: Any

    @classmethod
    def of(cls, array: Any) -> Flag:
        """The flag that `array` is.

        Raises TypeError for what is no array of integers or bools, ValueError for one that has
        not exactly one element.
        """
        dtype = getattr(array, "dtype", None)
        if dtype is None or not hasattr(array, "size"):
            raise TypeError(
                f"a flag is an array with one element, of a device or the CPU, not "
                f"{type(array).__name__}: its value is read at each launch"
            )
        if np.dtype(dtype).kind not in "biu":
            raise TypeError(f"a flag is of integers or bool, not {dtype}: compare it, as in x > 0")
        if array.size != 1:
            raise ValueError(f"a flag has one element, not {array.size}: use xp.any or xp.all")
        device = getattr(array, "device", None)
        return cls(
            resolve_one(array, "flag"), device if isinstance(device, Device) else None, array
        )

    def aimed(self, aim: Aim) -> Flag:
        """The flag that is in its place, of the same device."""
        return replace(self, region=aim.region(self.region))

    def read(self) -> bool:
        """Its truth now, where it is memory of the process."""
        return truth(self.region.start, self.region.end - self.region.start)


def truth(address: int, size_bytes: int) -> bool:
    """True where any of these bytes of the process is not 0."""
    return any(ctypes.string_at(address, size_bytes))
