"""Floor 4. Arrays of `cs.ANY`: where they are recorded, a pass over the graph chooses their device.

Until then, and for all who do not ask, they are arrays of the current device: their memory there is
where a value is when it has not been moved, and where a launch leaves what the program still has.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, TypeVar

from cudasync.array.elementwise.recorded import Held
from cudasync.array.memory.pool import Source
from cudasync.driver import ANY
from cudasync.driver.device import as_device
from cudasync.engine.current import engine as current_engine
from cudasync.graph.placement import memory

if TYPE_CHECKING:
    from cudasync.array.array import Array
    from cudasync.driver import Device

    AnyArray = TypeVar("AnyArray", bound=Array)


class HeldAnywhere(Held):
    """As `Held`, for memory that a pass may have elsewhere."""

    __slots__ = ()

    def __init__(self, memory: Any, ptr: int) -> None:
        self._memory = memory
        self.handed = memory.handed
        self.ptr = ptr

    @property
    def lasting(self) -> Any:
        """The memory itself: who keeps that does not count as one who has the array."""
        return self._memory


def anywhere(made: AnyArray) -> AnyArray:
    """`made`, which is new and alone on its memory: of any device, if it is being recorded."""
    recorder: Any = current_engine()
    if recorder.mode == "recording":
        held = made._allocation = HeldAnywhere(made._allocation, made.ptr)
        recorder.let_be_anywhere(made.region, made.device, held._memory, weakref.ref(held))
    return made


def is_anywhere(array: Any) -> bool:
    """True if a pass may have the memory of this array on any device."""
    return type(array._allocation) is HeldAnywhere


def is_on(array: Array, device: Any) -> bool:
    """True if `device`, as `to_device` takes it, is where the array is: `cs.ANY` is everywhere, but
    where it is recorded. TypeError and ValueError for what is no device."""
    on = as_device(device)
    if device is not ANY:
        return on is array.device
    recorder: Any = current_engine()
    return recorder.mode != "recording" or is_anywhere(array)


def _take(device: Device, size_bytes: int) -> Any:
    """Memory of a device from the pool, for a pass; it goes back with the last who has it."""
    return Source(device, size_bytes).take()


memory.provide(_take)
