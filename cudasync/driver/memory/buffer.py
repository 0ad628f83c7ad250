"""Floor 1. Memory on a device: the buffer that owns it, and typed views of it."""

from __future__ import annotations

import math
import operator
from typing import TYPE_CHECKING, Any, SupportsIndex

import numpy as np
from cuda.bindings import driver

from cudasync.driver.arguments.argument_form import form_for
from cudasync.driver.context import here
from cudasync.driver.device import as_device
from cudasync.driver.interchange.protocols import DLPACK_CUDA
from cudasync.driver.memory.allocations import ALLOCATIONS
from cudasync.driver.ownership.handles import Owned
from cudasync.driver.ownership.unpicklable import unpicklable
from cudasync.driver.streams.chosen_stream import as_stream
from cudasync.driver.streams.current_streams import current_device

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import DTypeLike

    from cudasync.driver.device import Device, DeviceLike
    from cudasync.driver.ownership.context_life import Life
    from cudasync.driver.streams.stream import Stream, StreamLike


# An address and a size have 64 bits in the driver; half of the addresses are the system's.
_MOST_BYTES = 1 << 63


def checked_size(size_bytes: SupportsIndex) -> int:
    """The size of a new buffer. Raises ValueError below 0, MemoryError for what nothing holds."""
    size = operator.index(size_bytes)
    if size < 0:
        raise ValueError(f"a buffer cannot have {size} bytes: give 1 or more")
    if size >= _MOST_BYTES:
        raise MemoryError(f"no memory has {size} bytes: work on parts")
    return size


@unpicklable("copy it to the host with memcpy_async and send that")
class DeviceBuffer:
    """Memory on a device, uninitialised, aligned to 256 bytes.

    With `stream=` it is allocated in the order of that stream (cuMemAllocAsync); later work there,
    or work ordered behind it, may use it. Without, it exists when the call returns (cuMemAlloc). A
    buffer without references is freed later, when the free delays nobody. A size of 0 is allowed
    and needs no memory. Raises CudaError when memory runs out, and MemoryError for more bytes than
    there are addresses.
    """

    __slots__ = ("__weakref__", "_owned", "_ptr", "_stream", "device", "form", "size_bytes")

    def __init__(
        self,
        size_bytes: SupportsIndex,
        device: DeviceLike | None = None,
        *,
        stream: StreamLike | None = None,
    ) -> None:
        size = checked_size(size_bytes)
        wanted = None if device is None else as_device(device)
        own = as_stream(stream, wanted) if stream is not None else None
        if own is not None and wanted is not None and own.device is not wanted:
            raise ValueError(
                f"the buffer is for {wanted!r}, but the stream belongs to {own.device!r}"
            )
        self.device: Device = own.device if own is not None else wanted or current_device()
        self.size_bytes = size
        self.form = form_for(type(self), None, False, self.device)
        self._stream = own
        context = self.device.context
        # The driver refuses size 0, but programs may have empty arrays.
        if own is None:
            ptr = context.allocate("cuMemAlloc", driver.cuMemAlloc, size or 1)
            owned = Owned(context, ptr, driver.cuMemFree, noun="buffer", blocking=True)
        else:
            raw = own.enter()
            ptr = context.allocate(
                "cuMemAllocAsync", driver.cuMemAllocAsync, size or 1, raw, is_placed=True
            )
            owned = Owned(context, ptr, _free_on(own), noun="buffer", blocking=False)
        self._ptr = int(ptr)
        self._owned = owned
        ALLOCATIONS.note(owned, self._ptr, size, context.ordinal)

    @property
    def ptr(self) -> int:
        """The device address. Raises ClosedError once closed."""
        owned = self._owned
        if owned.raw is None or owned.token is not owned.context.token:
            owned.get()  # Raises.
        return self._ptr

    @property
    def is_closed(self) -> bool:
        return self._owned.is_closed

    @property
    def life(self) -> Life | None:
        """The life of the device's context; the memory ends with it at the latest."""
        return self._owned.token

    def view(
        self, shape: Sequence[int] | int, dtype: DTypeLike, *, offset_bytes: int = 0
    ) -> DeviceView:
        """A typed, C-contiguous view for anything that reads `__cuda_array_interface__`.

        Raises ValueError if the view would reach past the buffer.
        """
        return DeviceView(self, shape, dtype, offset_bytes=offset_bytes)

    def close(self, stream: StreamLike | None = None) -> None:
        """Free the memory. Closing twice is harmless.

        With a stream, or if the buffer was allocated on a stream, the free is in the order of that
        stream (cuMemFreeAsync), without a wait; work elsewhere that uses the buffer must be ordered
        before it. Otherwise the call waits for all work on the device (cuMemFree).
        """
        own = as_stream(stream, self.device) if stream is not None else self._stream
        if own is None:
            self._owned.close()
        elif not self._owned.is_closed:
            own.enter()  # A closed stream is the caller's mistake, and the buffer stays.
            self._owned.close(_free_on(own))

    def __repr__(self) -> str:
        if self._owned.is_closed:
            return f"<DeviceBuffer of {self.size_bytes} bytes, closed>"
        return f"<DeviceBuffer of {self.size_bytes} bytes at {self._ptr:#x} on {self.device!r}>"


def _free_on(stream: Stream) -> Any:
    life = here.token

    def free(ptr: Any) -> Any:
        if stream.is_closed:
            # Its work may be unfinished, and a wait for it here could last for ever: this may run
            # inside any call that allocates.
            if life is not None:
                life.blocking_garbage.append((driver.cuMemFree, ptr))
            return (driver.CUresult.CUDA_SUCCESS,)
        return driver.cuMemFreeAsync(ptr, stream.enter())

    return free


@unpicklable("copy it to the host with memcpy_async and send that")
class DeviceView:
    """Part of a buffer as an array with shape and dtype, in C order. It keeps the buffer alive."""

    __slots__ = ("buffer", "dtype", "form", "offset_bytes", "shape", "size_bytes")

    def __init__(
        self,
        buffer: DeviceBuffer,
        shape: Sequence[int] | int,
        dtype: DTypeLike,
        *,
        offset_bytes: int = 0,
    ) -> None:
        extents = (shape,) if isinstance(shape, int) else tuple(operator.index(n) for n in shape)
        if any(extent < 0 for extent in extents):
            raise ValueError(f"the shape {extents} has a negative extent")
        self.buffer = buffer
        self.shape = extents
        self.dtype = np.dtype(dtype)
        self.offset_bytes = operator.index(offset_bytes)
        self.size_bytes = math.prod(extents) * self.dtype.itemsize
        if self.dtype.hasobject:
            raise ValueError("Python objects cannot be on a device: give a numeric dtype")
        self.form = form_for(type(self), self.dtype, False, buffer.device)
        end = self.offset_bytes + self.size_bytes
        if self.offset_bytes < 0 or end > buffer.size_bytes:
            raise ValueError(
                f"bytes {self.offset_bytes} to {end} are outside the buffer of "
                f"{buffer.size_bytes} bytes"
            )

    @property
    def device(self) -> Device:
        return self.buffer.device

    @property
    def ptr(self) -> int:
        """The device address of the first element. Raises ClosedError once the buffer is closed."""
        return self.buffer.ptr + self.offset_bytes

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {
            "version": 3,
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": (self.ptr if self.size_bytes else 0, False),
            "strides": None,
            "stream": None,
        }

    def __dlpack_device__(self) -> tuple[int, int]:
        """The memory's device in DLPack's numbers."""
        return (DLPACK_CUDA, self.device.ordinal)

    def __repr__(self) -> str:
        return f"<DeviceView {self.shape} {self.dtype} of {self.buffer!r}>"
