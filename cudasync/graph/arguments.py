"""Floor 3. The arguments of a graph: their names, and their slots in the recording.

The slot of an array is an array of the graph's own; the slot of a number is a number object with
its own identity; the slot of a function is a function.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from cudasync.driver import Device
from cudasync.driver.arguments.parameter import number_as
from cudasync.engine.hazards.variable import resolve_one
from cudasync.errors import RecordingError

if TYPE_CHECKING:
    from cudasync.engine.hazards.interval_map import Region


class FunctionSlot:
    """The slot of a function, whose value comes later."""

    def __init__(self, name: str) -> None:
        self.__name__ = name

    def __call__(self, *_: object) -> NoReturn:
        raise RecordingError(
            f"{self.__name__} is an argument of a graph: only a launch can call it"
        )


@dataclass(frozen=True, eq=False)
class Argument:
    """One argument: its name, its slot, and its first value."""

    name: str
    slot: Any
    first: Any

    @property
    def is_array(self) -> bool:
        return hasattr(self.slot, "region")

    @property
    def region(self) -> Region:
        """The bytes of the slot of an array."""
        return resolve_one(self.slot, "argument")

    def checked(self, value: Any) -> Any:
        """`value`, if it fits the argument. Raises TypeError and ValueError otherwise."""
        if self.is_array:
            return self._checked_array(value)
        if isinstance(self.slot, FunctionSlot):
            if not callable(value):
                raise TypeError(f"argument {self.name} is a function, not {type(value).__name__}")
            return value
        return number_as(self.slot.dtype, value, f"argument {self.name}")

    def _checked_array(self, value: Any) -> Any:
        slot = self.slot
        if not hasattr(value, "region") or not hasattr(value, "strides"):
            raise TypeError(f"argument {self.name} is an array, not {type(value).__name__}")
        if value.dtype != slot.dtype:
            raise TypeError(
                f"argument {self.name} has dtype {slot.dtype}, the given array has "
                f"{value.dtype}: cast the array, or record the graph with this dtype"
            )
        if value.shape != slot.shape:
            raise ValueError(
                f"argument {self.name} has shape {slot.shape}, the given array has {value.shape}: "
                "record another graph for this shape"
            )
        if value.device != slot.device:
            raise ValueError(
                f"argument {self.name} is on {_place(slot)}, the given array on {_place(value)}: "
                "move it with x.to_device(...)"
            )
        if value.strides != slot.strides:
            raise ValueError(
                f"argument {self.name} is C-contiguous, the given array has strides "
                f"{value.strides}: give x.copy()"
            )
        if value.is_read_only and not slot.is_read_only:
            raise ValueError(f"argument {self.name} is read-only: give x.copy()")
        return value

    def key(self, value: Any) -> Any:
        """The key that distinguishes values for the graph: for an array, its region."""
        if self.is_array:
            return value.region
        return value if isinstance(self.slot, FunctionSlot) else (type(value), value.tobytes())


def argument(name: str, value: Any) -> Argument:
    """An argument with `value` as its first value. Raises TypeError for an unsuitable object."""
    if hasattr(value, "region") and hasattr(value, "_slot"):
        if not value.is_contiguous:
            raise ValueError(f"argument {name} is not C-contiguous: give x.copy()")
        return Argument(name, value._slot(), value)
    if isinstance(value, (bool, int, float, np.generic)):
        number = np.asarray(value)[()]
        # A new object, because identity is what marks a slot.
        return Argument(name, number.dtype.type(number), number)
    if callable(value):
        return Argument(name, FunctionSlot(name), value)
    raise TypeError(
        f"argument {name} is a {type(value).__name__}: arguments are arrays, numbers and functions"
    )


def _place(array: Any) -> str:
    return repr(array.device) if isinstance(array.device, Device) else "the CPU"
