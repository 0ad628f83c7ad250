"""Floor 4, interchange. Other libraries' arrays, by `__cuda_array_interface__` (version 3).

The interface is read once for each use: its memory and stream count as of then.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from cudasync.array.allocation import DeviceBytes
from cudasync.array.array import Array
from cudasync.array.interchange.external_streams import take_over
from cudasync.driver import DeviceBuffer, DeviceView, Stream
from cudasync.driver.arguments.argument_form import form_for
from cudasync.driver.arguments.remedies import described
from cudasync.driver.interchange.protocols import awaited_stream
from cudasync.driver.memory.operand import device_of_address
from cudasync.driver.memory.strides import is_contiguous
from cudasync.engine.hazards.variable import interface_region

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cudasync.engine.hazards.interval_map import Region


class ForeignArray:
    """Another library's device array, as given to one call."""

    __slots__ = (
        "device",
        "dtype",
        "form",
        "is_contiguous",
        "is_read_only",
        "nbytes",
        "owner",
        "ptr",
        "ready_on",
        "region",
        "shape",
    )

    def __init__(self, owner: Any, interface: dict[str, Any], *, is_strided: bool = False) -> None:
        # The memory belongs to `owner`, which must stay alive while it is used.
        self.owner = owner
        if interface.get("mask") is not None:
            raise ValueError(
                f"the {type(owner).__name__} is a masked array, and the mask would be lost: give "
                f"its data"
            )
        self.shape = tuple(interface["shape"])
        self.dtype = np.dtype(interface["typestr"])
        self.nbytes = math.prod(self.shape) * self.dtype.itemsize
        address, is_read_only = interface["data"]
        self.ptr = int(address or 0)
        self.is_read_only = bool(is_read_only)
        self.region: Region = interface_region({**interface, "data": (self.ptr, is_read_only)})
        strides = interface.get("strides")
        self.is_contiguous = is_contiguous(self.shape, strides, self.dtype.itemsize)
        self.device = device_of_address(owner, self.ptr)
        # The properties that a kernel checks. With `is_strided` the kernel knows the strides.
        has_gaps = not self.is_contiguous and not is_strided
        self.form = form_for(type(self), self.dtype, has_gaps, self.device)
        # The handle of a stream; the memory is ready behind the stream's work so far.
        self.ready_on = awaited_stream(interface)

    @property
    def handle(self) -> DeviceBytes:
        """Its bytes, as the driver layer takes them."""
        return DeviceBytes(self.ptr, self.nbytes, self.device)


def strided(array: Any) -> Any:
    """`array` as an argument for a kernel that knows its strides.

    A kernel gets a view's address, and its span of bytes as the memory that it may use; it finds
    the elements by itself. Without this function, an array with gaps or in another order than C is
    refused. `array` is an array, or another library's with `__cuda_array_interface__`, whose memory
    and stream count as of now. TypeError for anything else. Nothing is copied.
    """
    if isinstance(array, Array):
        view = array[...]
        form = view.form
        view.form = form_for(form.kind, form.dtype, False, form.device, form.life)
        return view
    interface = getattr(array, "__cuda_array_interface__", None)
    if isinstance(interface, dict) and not isinstance(array, (DeviceBuffer, DeviceView)):
        return ForeignArray(array, interface, is_strided=True)
    raise TypeError(f"strided takes a device array, not {described(array)}")


def seen(thing: Any) -> Any:
    """`thing`, or a ForeignArray if it is another library's array."""
    if isinstance(thing, (Array, DeviceBuffer, DeviceView, ForeignArray, np.ndarray)):
        return thing
    interface = getattr(thing, "__cuda_array_interface__", None)
    return ForeignArray(thing, interface) if isinstance(interface, dict) else thing


def take_over_foreign(things: Iterable[Any]) -> None:
    """Order the engine's work on the foreign arrays among `things` behind their streams."""
    waiting: dict[int, list[ForeignArray]] = {}
    for thing in things:
        if isinstance(thing, ForeignArray) and thing.ready_on is not None and thing.nbytes:
            waiting.setdefault(thing.ready_on, []).append(thing)
    for handle, arrays in waiting.items():
        take_over(*arrays, after=Stream.from_handle(handle, arrays[0].device))
