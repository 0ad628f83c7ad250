"""Floor 5. One array of several devices': the sum of what a worker pushes, where its key is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cudasync import xp
from cudasync.array.copying import copy

if TYPE_CHECKING:
    from cudasync.array.array import Array


def total(arrays: list[Array], home: Any, priority: int) -> Array:
    """The sum in the order of the list, on `home`; one array that is there is itself the sum."""
    found = at(home, arrays[0], priority)
    for each in arrays[1:]:
        found = xp.add(found, at(home, each, priority))
    return found


def at(home: Any, x: Array, priority: int) -> Array:
    """`x` on the device `home`: itself, or a copy."""
    if x.device == home:
        return x
    made: Array = xp.empty(x.shape, dtype=x.dtype, device=home)
    copy(made, x, priority=priority)
    return made
