"""Floor 1. Copies and fills, enqueued on a stream.

All operands are checked before anything is enqueued. A host operand is kept alive until its copy
has run. From the call until the stream has passed the copy, the caller must not touch the operand.
(Some drivers use pageable memory at once, but not pinned memory.) A copy that is captured into a
graph uses its operands whenever the graph runs: the owner of the graph must keep them.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, NamedTuple, SupportsIndex

import numpy as np
from cuda.bindings import driver

from cudasync.driver.memory.operand import address_of, memory_of
from cudasync.driver.result import failure
from cudasync.driver.streams.chosen_stream import as_stream
from cudasync.driver.streams.stream import Stream

if TYPE_CHECKING:
    from cudasync.driver.device import Device
    from cudasync.driver.streams.stream import StreamLike


def memcpy_async(
    target: object,
    source: object,
    *,
    stream: StreamLike | None = None,
    size_bytes: SupportsIndex | None = None,
) -> None:
    """Copy `source` to `target` in the order of `stream`; return without waiting for the copy.

    The operands determine the direction. Each is a DeviceBuffer, a view of one, an object with
    `__cuda_array_interface__`, a PinnedBuffer, a NumPy array, or an object with the buffer
    protocol. Both have the same size, unless `size_bytes` gives the size from the start of each.
    Without a stream: the current stream of the target's device, or else the source's.

    Raises TypeError for other operands; ValueError for different sizes, for memory that is not
    C-contiguous, for a read-only target and for an engine's array that was not handed over to the
    stream; ClosedError for a closed buffer; all before anything is enqueued. The driver waits for
    the stream if the target is pageable host memory, if a pageable source has more than 64 KiB, and
    for copies from host memory to host memory, also pinned.
    (cuMemcpyHtoDAsync, cuMemcpyDtoHAsync, cuMemcpyDtoDAsync, cuMemcpyPeerAsync, cuMemcpyAsync)
    """
    place, size, device, is_read_only = memory_of(target, "target", stream)
    origin, given, origin_device, _ = memory_of(source, "source", stream)
    if size_bytes is not None or size != given:
        size = _size(size, given, size_bytes)
    if is_read_only:
        raise ValueError("the target is read-only: give writable memory")
    on = stream if type(stream) is Stream else as_stream(stream, device or origin_device)
    raw = on.enter()
    if not size:
        return
    if device is None:
        if origin_device is None:
            call = "cuMemcpyAsync"
            code = driver.cuMemcpyAsync(address_of(place), address_of(origin), size, raw)[0]
        else:
            call = "cuMemcpyDtoHAsync"
            code = driver.cuMemcpyDtoHAsync(place, origin, size, raw)[0]
    elif origin_device is None:
        call = "cuMemcpyHtoDAsync"
        code = driver.cuMemcpyHtoDAsync(place, origin, size, raw)[0]
    elif device is origin_device:
        call = "cuMemcpyDtoDAsync"
        code = driver.cuMemcpyDtoDAsync(place, origin, size, raw)[0]
    else:
        call = "cuMemcpyPeerAsync"
        handles = device.context.handle(), origin_device.context.handle()
        code = driver.cuMemcpyPeerAsync(place, handles[0], origin, handles[1], size, raw)[0]
    if code:
        raise failure(code, call)
    if device is None:
        on.keep(target, size)
    if origin_device is None:
        on.keep(source, size)


def _size(target: int, source: int, wanted: SupportsIndex | None) -> int:
    if wanted is None:
        raise ValueError(
            f"the target has {target} bytes, the source {source}: give size_bytes to copy a part"
        )
    size = operator.index(wanted)
    if not 0 <= size <= min(target, source):
        raise ValueError(
            f"size_bytes is {size}, the target has {target} bytes, the source {source}"
        )
    return size


_FILLS = {1: "cuMemsetD8Async", 2: "cuMemsetD16Async", 4: "cuMemsetD32Async"}


def memset_async(
    target: object,
    value: int | np.generic,
    *,
    stream: StreamLike | None = None,
    size_bytes: SupportsIndex | None = None,
) -> None:
    """Fill device memory `target` with `value` in the order of `stream`; return at once.

    An int from 0 to 255 fills every byte; a NumPy scalar of 1, 2 or 4 bytes fills every element
    of its size. `size_bytes` limits the fill to the start. Raises TypeError for a target that is
    not on a device; ValueError for a value out of range, a read-only target, or a size that is no
    multiple of the value's size. (cuMemsetD8Async, cuMemsetD16Async, cuMemsetD32Async)
    """
    place, device, number, width, size = fill_of(target, value, stream, size_bytes)
    raw = as_stream(stream, device).enter()
    if not size:
        return
    call = _FILLS[width]
    code = getattr(driver, call)(place, number, size // width, raw)[0]
    if code:
        raise failure(code, call)


class Filling(NamedTuple):
    """A fill: address, device, the value as an integer, bytes of an element and of all."""

    place: int
    device: Device
    number: int
    width: int
    size: int


def fill_of(
    target: object,
    value: int | np.generic,
    stream: StreamLike | None,
    size_bytes: SupportsIndex | None,
) -> Filling:
    """The fill for `memset_async`. Raises the errors of `memset_async`."""
    place, most, device, is_read_only = memory_of(target, "target", stream)
    if device is None:
        raise TypeError(f"fill takes device memory, not a {type(target).__name__}")
    if is_read_only:
        raise ValueError("the target is read-only: give writable memory")
    if isinstance(value, np.generic):
        pattern = value.tobytes()
    else:
        byte = operator.index(value)
        if not 0 <= byte <= 255:
            raise ValueError(
                f"{byte} does not fit a byte: give 0 to 255, or a NumPy scalar of 2 or 4 bytes"
            )
        pattern = bytes([byte])
    width = len(pattern)
    if width not in _FILLS:
        raise ValueError(f"a fill value has 1, 2 or 4 bytes, not {width}")
    size = most if size_bytes is None else operator.index(size_bytes)
    if not 0 <= size <= most or size % width or place % width:
        raise ValueError(
            f"{size} bytes at {place:#x}, in a target of {most} bytes, cannot be filled: "
            f"size and address must be multiples of the {width} bytes of the value"
        )
    return Filling(place, device, int.from_bytes(pattern, "little"), width, size)
