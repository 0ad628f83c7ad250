"""Floor 5. The sum of the arrays that a worker pushes from several devices, on the key's device.

It is made by copies and additions on that device, or by a communicator of the devices.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cudasync import xp
from cudasync.array.copies.copy import copy
from cudasync.array.host.memory import CPU

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cudasync.array.array import Array
    from cudasync.distributed import Communicator


def total(arrays: list[Array], home: Any, priority: int) -> Array:
    """The sum in the order of the list, on `home`; a single array on `home` is itself the sum."""
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


class Across:
    """The same sum by a communicator of the devices that have a part.

    `make` makes a communicator for each set of devices, at their first sum; it is kept. `check`
    raises TypeError for a dtype that the communicator cannot sum.
    """

    def __init__(
        self, make: Callable[[Sequence[Any]], Communicator], check: Callable[[Any], object]
    ) -> None:
        self._make = make
        self.check = check
        self._made: dict[tuple[Any, ...], Communicator] = {}

    def total(self, arrays: list[Array], home: Any, priority: int) -> Array:
        """The sum on `home`. Each device sums its own arrays; arrays on the CPU go to `home`."""
        parts: dict[Any, Array] = {}
        for each in arrays:
            near = at(home, each, priority) if each.device == CPU else each
            known = parts.get(near.device)
            parts[near.device] = near if known is None else xp.add(known, near)
        devices = sorted(parts, key=lambda device: int(device.ordinal))
        if len(devices) == 1:
            return at(home, parts[devices[0]], priority)
        comm = self._made.get(tuple(devices))
        if comm is None:
            comm = self._made[tuple(devices)] = self._make(devices)
        root = devices.index(home) if home in parts else 0
        made: Array = xp.empty_like(parts[devices[root]])
        outs = [made if rank == root else None for rank in comm.ranks]
        comm.reduce([parts[each] for each in devices], outs, root=root, priority=priority)
        return at(home, made, priority)

    def close(self) -> None:
        """Close the communicators."""
        while self._made:
            self._made.popitem()[1].close()
