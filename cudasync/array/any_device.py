"""Floor 4. Arrays on `cs.ANY`, for which a pass over the recorded graph chooses the device.

Before the pass, and for code that does not ask, they are arrays of the current device. A value that
was not moved is in their memory there, and a launch leaves the values there that the program still
has.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, TypeVar

from cudasync.array.elementwise.recorded import Held
from cudasync.array.memory.pool import Source
from cudasync.driver import ANY
from cudasync.driver.device import as_device
from cudasync.engine.current import engine as current_engine
from cudasync.engine.hazards.interval_map import Region
from cudasync.engine.log import fences
from cudasync.graph.placement import memory

if TYPE_CHECKING:
    from cudasync.array.array import Array
    from cudasync.driver import Device

    AnyArray = TypeVar("AnyArray", bound=Array)


class HeldAnywhere(Held):
    """A `Held` for memory that a pass may place elsewhere."""

    __slots__ = ()

    def __init__(self, memory: Any, ptr: int) -> None:
        self._memory = memory
        self.handed = memory.handed
        self.ptr = ptr

    @property
    def lasting(self) -> Any:
        """The memory itself: keeping it does not keep the array alive for the graph."""
        return self._memory


def anywhere(made: AnyArray) -> AnyArray:
    """`made`, new and the only array on its memory: on any device, if it is being recorded."""
    recorder: Any = current_engine()
    if recorder.mode == "recording":
        held = made._allocation = HeldAnywhere(made._allocation, made.ptr)
        recorder.let_be_anywhere(made.region, made.device, held._memory, weakref.ref(held))
    return made


def is_anywhere(array: Any) -> bool:
    """True if a pass may have the memory of this array on any device."""
    return type(array._allocation) is HeldAnywhere


def is_on(array: Array, device: Any) -> bool:
    """True if the array is on `device`, as `to_device` takes it. In a recording only arrays on
    `cs.ANY` are on `cs.ANY`, elsewhere all are. TypeError and ValueError for anything but a
    device."""
    on = as_device(device)
    if device is not ANY:
        return on is array.device
    recorder: Any = current_engine()
    return recorder.mode != "recording" or is_anywhere(array)


def _take(device: Device, size_bytes: int) -> Any:
    """Memory of a device from the pool, for a pass; the last holder's end returns it.

    Steps may write it part by part, and a part is an update. So poison of its last life, which
    whole overwrites heal, ends here.
    """
    taken = Source(device, size_bytes).take()
    outside: Any = current_engine()
    while outside.mode == "recording":
        outside = outside.outside
    fences.overwrite(outside, [Region(taken.ptr, taken.ptr + size_bytes)])
    return taken


memory.provide(_take)
