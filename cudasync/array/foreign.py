"""Floor 4. Other libraries' arrays, by `__cuda_array_interface__` (version 3).

The interface is read once for each use: what it says of memory and stream counts as of then.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from cudasync.array.allocation import DeviceBytes
from cudasync.array.array import Array
from cudasync.array.crossing import take_over
from cudasync.driver import DeviceBuffer, DeviceView, Stream
from cudasync.driver.interop import awaited_stream
from cudasync.driver.operand import device_of_address
from cudasync.engine.variable import interface_region

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cudasync.engine.ranges import Region


class ForeignArray:
    """Another library's device array, as one call was given it."""

    __slots__ = (
        "device",
        "dtype",
        "is_contiguous",
        "is_read_only",
        "nbytes",
        "owner",
        "ptr",
        "ready_on",
        "region",
        "shape",
    )

    def __init__(self, owner: Any, interface: dict[str, Any]) -> None:
        # The memory is its owner's, who must be alive while it is used.
        self.owner = owner
        if interface.get("mask") is not None:
            raise ValueError(
                f"the {type(owner).__name__} is a masked array; the mask would be lost"
            )
        self.shape = tuple(interface["shape"])
        self.dtype = np.dtype(interface["typestr"])
        self.nbytes = math.prod(self.shape) * self.dtype.itemsize
        address, is_read_only = interface["data"]
        self.ptr = int(address or 0)
        self.is_read_only = bool(is_read_only)
        self.region: Region = interface_region({**interface, "data": (self.ptr, is_read_only)})
        self.is_contiguous = self.region.end - self.region.start == self.nbytes
        self.device = device_of_address(owner, self.ptr)
        # The handle of the stream behind whose work so far the memory is ready.
        self.ready_on = awaited_stream(interface)

    @property
    def handle(self) -> DeviceBytes:
        """Its bytes, as the driver layer takes them."""
        return DeviceBytes(self.ptr, self.nbytes, self.device)


def seen(thing: Any) -> Any:
    """`thing`, or a ForeignArray if it is another library's array."""
    if isinstance(thing, (Array, DeviceBuffer, DeviceView, ForeignArray, np.ndarray)):
        return thing
    interface = getattr(thing, "__cuda_array_interface__", None)
    return ForeignArray(thing, interface) if isinstance(interface, dict) else thing


def take_over_foreign(things: Iterable[Any]) -> None:
    """Order what the engine does with the foreign arrays among `things` behind their streams."""
    waiting: dict[int, list[ForeignArray]] = {}
    for thing in things:
        if isinstance(thing, ForeignArray) and thing.ready_on is not None and thing.nbytes:
            waiting.setdefault(thing.ready_on, []).append(thing)
    for handle, arrays in waiting.items():
        take_over(*arrays, after=Stream.from_handle(handle, arrays[0].device))
