"""Floor 4, host. Arrays over other libraries' memory on the CPU, by DLPack. Nothing is copied.

The memory is the producer's, and is kept until the last array, op and export over it is gone. The
engine does not see the producer's accesses meanwhile. For a NumPy array it sees ops that declare
the array, because these name the same bytes in the engine's map.
"""

from __future__ import annotations

import weakref
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from cudasync.array.host.array import HostArray, ReadOnlyHostArray
from cudasync.array.host.memory import UNKNOWN, HostBytes
from cudasync.array.interchange.stream_ownership import Handed
from cudasync.driver.interchange import capsules
from cudasync.driver.interchange.dlpack import MAJOR, MINOR
from cudasync.driver.interchange.protocols import DLPACK_CPU
from cudasync.engine.hazards.variable import resolve_one, span
from cudasync.engine.log.combiner import COMBINER
from cudasync.engine.log.entries import Forget

if TYPE_CHECKING:
    from cudasync.engine.hazards.interval_map import Region


class LentBytes(HostBytes):
    """Memory of another library, from the first to the last byte of one of its tensors."""

    __slots__ = ()

    def __init__(self, tensor: np.ndarray[Any, Any], region: Region, *, is_read_only: bool) -> None:
        self.known = UNKNOWN
        self.handed = Handed()
        self.ptr, end = region
        self.bytes = np.asarray(_Span(tensor, self.ptr, end - self.ptr, is_read_only))


class _Span:
    """A range of bytes for NumPy; the array over them keeps this object, and so the tensor."""

    def __init__(
        self, tensor: np.ndarray[Any, Any], start: int, size_bytes: int, is_read_only: bool
    ) -> None:
        self.tensor = tensor
        self.__array_interface__ = {
            "shape": (size_bytes,),
            "typestr": "|u1",
            "data": (start, is_read_only),
            "version": 3,
        }


def lent(producer: Any) -> HostArray:
    """An array over memory of a producer on the CPU, read-only if the producer says so.

    Raises BufferError for memory that the protocol cannot share, and for a capsule of another
    device.
    """
    if isinstance(producer, np.ndarray):
        tensor, is_read_only = producer, not producer.flags.writeable
        # This raises at DLPack's own limits, as for any other library.
        np.from_dlpack(producer)
    else:
        tensor, is_read_only = _taken(producer)
    kind = ReadOnlyHostArray if is_read_only else HostArray
    start = tensor.ctypes.data
    region = span(start, tensor.shape, tensor.strides, tensor.itemsize)
    memory = LentBytes(tensor, region, is_read_only=is_read_only)
    if tensor.size and isinstance(producer, np.ndarray):
        # The engine learns of the end of NumPy's own memory, not of a view's.
        resolve_one(producer, "writes")
    elif tensor.size:
        _hear_of_the_end(memory.bytes, region)
    held: Any = memory
    return kind(held, start, tensor.shape, tensor.strides, tensor.dtype)


class _Once:
    """A producer of a capsule that was taken from another producer."""

    def __init__(self, capsule: Any) -> None:
        self._capsule = capsule

    def __dlpack__(self, **_: Any) -> Any:
        return self._capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return DLPACK_CPU, 0


def _taken(producer: Any) -> tuple[np.ndarray[Any, Any], bool]:
    """NumPy's array over the producer's memory, and whether that must not be written."""
    try:
        capsule = producer.__dlpack__(max_version=(MAJOR, MINOR))
    except TypeError:
        # A producer from before version 1.0.
        capsule = producer.__dlpack__()
    is_versioned = capsules.name_of(capsule) == capsules.VERSIONED
    try:
        tensor = np.from_dlpack(_Once(capsule))
    except (RuntimeError, ValueError) as error:
        raise BufferError(f"the {type(producer).__name__} cannot be shared: {error}") from error
    # NumPy's array over an older tensor is read-only, because the tensor cannot say what it may be.
    is_writable = tensor.flags.writeable or (
        not is_versioned and says_writable(producer, "__array_interface__", tensor.ctypes.data)
    )
    return tensor, not is_writable


def says_writable(producer: Any, protocol: str, address: int) -> bool:
    """Whether the producer's array interface says that its memory at `address` may be written."""
    # A property of another library, which may raise anything.
    with suppress(Exception):
        told_address, is_read_only = getattr(producer, protocol)["data"]
        return told_address == address and not is_read_only
    return False


# Regions that are lent now. A producer may lend the same bytes several times.
_lent: dict[int, Region] = {}


def _hear_of_the_end(memory: np.ndarray[Any, Any], region: Region) -> None:
    """Forget the bytes when they end: later memory there inherits no failures of theirs."""
    key = id(memory)
    _lent[key] = region

    def gone(key: int, region: Region) -> None:
        del _lent[key]
        low, high = region
        if not any(start < high and low < end for start, end in list(_lent.values())):
            COMBINER.log.append(Forget(region))

    weakref.finalize(memory, gone, key, region).atexit = False
