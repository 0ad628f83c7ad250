"""Floor 4, copies. The two sides of a copy, and the checks on them before anything is pushed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from cudasync.array.allocation import DeviceBytes
from cudasync.array.array import Array
from cudasync.array.copies.box_copies import box_between, is_apart
from cudasync.array.interchange.cuda_array_interface import ForeignArray
from cudasync.driver import DeviceBuffer, DeviceView
from cudasync.driver.memory.strides import contiguous_strides
from cudasync.engine.hazards.variable import resolve_one

if TYPE_CHECKING:
    from cudasync.driver import Device
    from cudasync.driver.memory.box_copies import Box
    from cudasync.engine.hazards.interval_map import Region


class Side:
    """One side of a copy: the driver's operand, and the properties that must match the other
    side."""

    __slots__ = (
        "device",
        "dtype",
        "handle",
        "is_contiguous",
        "is_host",
        "nbytes",
        "resource",
        "shape",
        "strides",
    )

    def __init__(self, thing: Any, role: str) -> None:
        self.resource = thing
        self.is_host = isinstance(thing, np.ndarray)
        self.device: Device | None = None
        self.shape: tuple[int, ...] | None = None
        # In bytes; empty for C order.
        self.strides: tuple[int, ...] = ()
        self.dtype: np.dtype[Any] | None = None
        if isinstance(thing, np.ndarray):
            self.shape, self.dtype, self.nbytes = thing.shape, thing.dtype, thing.nbytes
            self.handle: Any = thing
            contiguous, self.strides = thing.flags.c_contiguous, thing.strides
            if role == "target" and not thing.flags.writeable:
                raise ValueError("the target of the copy is read-only: give a writable array")
        elif isinstance(thing, (Array, ForeignArray)):
            self.shape, self.dtype, self.nbytes = thing.shape, thing.dtype, thing.nbytes
            self.device, contiguous = thing.device, thing.is_contiguous
            if isinstance(thing, Array):
                thing.form.raise_if_over()
                self.strides = thing.strides
            self.handle = DeviceBytes(thing.ptr, thing.nbytes, thing.device)
            if role == "target" and thing.is_read_only:
                raise ValueError("the target of the copy is read-only: give a writable array")
        elif isinstance(thing, DeviceView):
            self.shape, self.dtype, self.nbytes = thing.shape, thing.dtype, thing.size_bytes
            self.device, contiguous = thing.device, True
            self.handle = DeviceBytes(thing.ptr, thing.size_bytes, thing.device)
        elif isinstance(thing, DeviceBuffer):
            self.nbytes, self.device, contiguous = thing.size_bytes, thing.device, True
            self.handle = DeviceBytes(thing.ptr, thing.size_bytes, thing.device)
        else:
            raise TypeError(
                f"the {role} of a copy is a device array, a DeviceBuffer or a NumPy array, "
                f"not {type(thing).__name__}"
            )
        self.is_contiguous = contiguous
        if not contiguous and isinstance(thing, ForeignArray):
            raise ValueError(
                f"the {role} of the copy, an array of another library, is not contiguous"
            )

    @property
    def region(self) -> Region:
        """Its bytes from the lowest to the highest."""
        return resolve_one(self.resource, "copies")

    @property
    def whole(self) -> Any:
        """These bytes, including those in its gaps, in the form that the driver layer takes."""
        if self.is_contiguous:
            return self.handle
        start, end = self.region
        if self.device is None:
            return np.asarray(_Span(self.handle, start, end))
        return DeviceBytes(start, end - start, self.device)


class _Span:
    """The bytes [start, end) around a NumPy array; they keep the array alive."""

    def __init__(self, array: np.ndarray[Any, Any], start: int, end: int) -> None:
        self._array = array
        self.__array_interface__ = {
            "version": 3,
            "shape": (end - start,),
            "typestr": "|u1",
            "data": (start, not array.flags.writeable),
        }


def raise_unless_alike(to: Side, of: Side) -> None:
    """ValueError for shapes or sizes that differ, TypeError for dtypes."""
    if to.shape is not None and of.shape is not None and to.shape != of.shape:
        raise ValueError(f"cannot copy shape {of.shape} to shape {to.shape}")
    if to.dtype is not None and of.dtype is not None and to.dtype != of.dtype:
        raise TypeError(f"cannot copy {of.dtype} to {to.dtype}: cast first")
    if to.nbytes != of.nbytes:
        raise ValueError(f"cannot copy {of.nbytes} bytes to {to.nbytes} bytes")


def box_of(to: Side, of: Side) -> Box | None:
    """The box of a copy whose sides may have gaps; None if one driver call cannot copy it."""
    known = to if to.shape is not None else of
    shape, dtype = known.shape, known.dtype
    assert shape is not None
    assert dtype is not None
    if dtype.hasobject:
        return None
    size = dtype.itemsize
    plain = contiguous_strides(shape, size)
    return box_between(
        (shape, plain if to.is_contiguous else to.strides, size),
        (shape, plain if of.is_contiguous else of.strides, size),
    )


def meet(to: Side, of: Side, box: Box | None) -> bool:
    """True if the sides may overlap, which the driver's copies do not allow."""
    if to.device is None or of.device is None:
        return False
    target, source = to.region, of.region
    if source.end <= target.start or target.end <= source.start:
        return False
    return box is None or not is_apart(box, target.start - source.start)
