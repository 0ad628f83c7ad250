"""Floor 1. Copies and fills, enqueued on a stream.

Everything about the operands is checked before anything is enqueued. A host operand is kept alive
until its copy has run. When it is read or written is another matter: from the call until the
stream has passed, the caller leaves it alone (pageable memory may be used at once by some drivers,
pinned memory is not).
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, SupportsIndex

import numpy as np
from cuda.bindings import driver

from cudasync.driver.operand import Memory, address_of, memory_of
from cudasync.driver.result import failure
from cudasync.driver.stream import as_stream

if TYPE_CHECKING:
    from cudasync.driver.stream import StreamLike


def memcpy_async(
    target: object,
    source: object,
    *,
    stream: StreamLike | None = None,
    size_bytes: SupportsIndex | None = None,
) -> None:
    """Copy `source` to `target` in the order of `stream`; return without waiting for the copy.

    Which way is worked out from the operands, each of them a DeviceBuffer, a view of one, anything
    with `__cuda_array_interface__`, a PinnedBuffer, a NumPy array, or any object with the buffer
    protocol. Both have the same size, unless `size_bytes` says how much of each, from its start.
    Without a stream: the current one of the target's device, or else the source's.

    Raises TypeError for other operands; ValueError for sizes that differ, for memory that is not
    C-contiguous and for a read-only target; ClosedError for a closed buffer; all of that before
    anything is enqueued. With pageable host memory the driver may wait for the stream.
    (cuMemcpyHtoDAsync, cuMemcpyDtoHAsync, cuMemcpyDtoDAsync, cuMemcpyPeerAsync, cuMemcpyAsync)
    """
    to = memory_of(target, "target")
    of = memory_of(source, "source")
    size = _size(to, of, size_bytes)
    if to.is_read_only:
        raise ValueError("the target is read-only")
    on = as_stream(stream, to.device or of.device)
    raw = on.enter()
    if not size:
        return
    call, code = _copy(to, of, size, raw)
    if code:
        raise failure(code, call)
    if to.device is None:
        on.keep(target, size)
    if of.device is None:
        on.keep(source, size)


def _size(to: Memory, of: Memory, wanted: SupportsIndex | None) -> int:
    if wanted is None:
        if to.size_bytes != of.size_bytes:
            raise ValueError(
                f"the target has {to.size_bytes} bytes, the source {of.size_bytes}: "
                "give size_bytes to copy a part"
            )
        return to.size_bytes
    size = operator.index(wanted)
    if not 0 <= size <= min(to.size_bytes, of.size_bytes):
        raise ValueError(
            f"size_bytes is {size}, the target has {to.size_bytes} bytes, "
            f"the source {of.size_bytes}"
        )
    return size


def _copy(to: Memory, of: Memory, size: int, raw: Any) -> tuple[str, Any]:
    """Enqueue the copy: the driver function's name, and its answer."""
    if to.device is None:
        if of.device is None:
            addresses = address_of(to.place), address_of(of.place)
            return "cuMemcpyAsync", driver.cuMemcpyAsync(*addresses, size, raw)[0]
        return "cuMemcpyDtoHAsync", driver.cuMemcpyDtoHAsync(to.place, of.place, size, raw)[0]
    if of.device is None:
        return "cuMemcpyHtoDAsync", driver.cuMemcpyHtoDAsync(to.place, of.place, size, raw)[0]
    if to.device is of.device:
        return "cuMemcpyDtoDAsync", driver.cuMemcpyDtoDAsync(to.place, of.place, size, raw)[0]
    answer = driver.cuMemcpyPeerAsync(
        to.place, to.device.context.handle(), of.place, of.device.context.handle(), size, raw
    )
    return "cuMemcpyPeerAsync", answer[0]


_FILLS = {1: "cuMemsetD8Async", 2: "cuMemsetD16Async", 4: "cuMemsetD32Async"}


def memset_async(
    target: object,
    value: int | np.generic,
    *,
    stream: StreamLike | None = None,
    size_bytes: SupportsIndex | None = None,
) -> None:
    """Fill `target`, device memory, with `value` in the order of `stream`; return at once.

    An int from 0 to 255 fills every byte; a NumPy scalar of 1, 2 or 4 bytes fills every element
    of its size. `size_bytes` limits the fill to the start. Raises TypeError for a target that is
    not on a device, ValueError for a value out of range, a read-only target, or a size that is no
    multiple of the value's. (cuMemsetD8Async, cuMemsetD16Async, cuMemsetD32Async)
    """
    to = memory_of(target, "target")
    if to.device is None:
        raise TypeError(f"memset_async fills device memory, not a {type(target).__name__}")
    if to.is_read_only:
        raise ValueError("the target is read-only")
    if isinstance(value, np.generic):
        pattern = value.tobytes()
    else:
        byte = operator.index(value)
        if not 0 <= byte <= 255:
            raise ValueError(f"{byte} does not fit a byte: give a NumPy scalar of 2 or 4 bytes")
        pattern = bytes([byte])
    width = len(pattern)
    if width not in _FILLS:
        raise ValueError(f"a fill value has 1, 2 or 4 bytes, not {width}")
    size = to.size_bytes if size_bytes is None else operator.index(size_bytes)
    if not 0 <= size <= to.size_bytes or size % width or to.place % width:
        raise ValueError(
            f"{size} bytes at {to.place:#x}, in a target of {to.size_bytes} bytes, "
            f"can not be filled with a value of {width}"
        )
    raw = as_stream(stream, to.device).enter()
    if not size:
        return
    call = _FILLS[width]
    number = int.from_bytes(pattern, "little")
    code = getattr(driver, call)(to.place, number, size // width, raw)[0]
    if code:
        raise failure(code, call)
