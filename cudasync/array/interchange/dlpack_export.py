"""Floor 4, interchange. An array's memory lent to another library by DLPack, in the engine's order.

It implements the protocol of the array API standard, version 2023.12 and later: stream, version,
device and copy. All refusals come before any stream is ordered.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

from cudasync.array.interchange.external_streams import hand_over, wait_for_users
from cudasync.driver import Stream
from cudasync.driver.interchange.dlpack import IS_COPIED, READ_ONLY, element_type
from cudasync.driver.interchange.dlpack_export import lend
from cudasync.driver.interchange.protocols import DLPACK_CPU, DLPACK_CUDA_MANAGED
from cudasync.engine import current

if TYPE_CHECKING:
    from cudasync.array.array import Array

_LEGACY = 1
_NO_ORDER = -1


def export(
    array: Array,
    stream: Any,
    max_version: tuple[int, int] | None,
    dl_device: tuple[int, int] | None,
    copy: bool | None,
) -> Any:
    """A capsule, as documented at `Array.__dlpack__`."""
    array.form.raise_if_over()
    if dl_device is not None:
        wanted = (int(dl_device[0]), int(dl_device[1]))
        if wanted[0] == DLPACK_CPU:
            return _on_host(array, stream, max_version, copy)
        if wanted != array.__dlpack_device__():
            raise BufferError(
                f"the array is on DLPack device {array.__dlpack_device__()}, not {wanted}: "
                "copy it there first"
            )
    is_versioned = max_version is not None and max_version[0] >= 1
    flags = (READ_ONLY if array.is_read_only else 0) | (IS_COPIED if copy else 0)
    if array.is_read_only and not copy and not is_versioned:
        raise BufferError(
            "the array is read-only, and DLPack before 1.0 cannot say so: give x.copy()"
        )
    element_type(array.dtype)
    if any(stride % array.dtype.itemsize for stride in array.strides):
        raise BufferError(f"strides of {array.strides} bytes are not multiples of an element")
    to = _consumer(array, stream)
    if copy:
        array = array.copy()
        flags = IS_COPIED
    if array.nbytes and not current.is_in_op():
        if to is None:
            wait_for_users(array)
        else:
            hand_over(array, to=to)
    item_size = array.dtype.itemsize
    return lend(
        array,
        ptr=array.ptr if array.nbytes else 0,
        shape=array.shape,
        strides=[stride // item_size for stride in array.strides],
        dtype=array.dtype,
        device=array.__dlpack_device__(),
        flags=flags,
        is_versioned=is_versioned,
    )


def _consumer(array: Array, stream: Any) -> Stream | None:
    """The stream that the consumer will use the memory on; None if it names none."""
    if stream is None:
        if array.__dlpack_device__()[0] == DLPACK_CUDA_MANAGED:
            # It may be NumPy, which reads managed memory from the host at once.
            return None
        stream = _LEGACY
    if hasattr(stream, "__cuda_stream__"):
        return Stream.from_object(stream, array.device)
    handle = operator.index(stream)
    if handle == _NO_ORDER:
        return None
    if handle <= 0:
        raise ValueError(
            f"stream={handle}: DLPack takes -1 (no order), 1 (the legacy default stream), 2 (the "
            f"per-thread default stream) or a handle"
        )
    return Stream.from_handle(handle, array.device)


def _on_host(
    array: Array, stream: Any, max_version: tuple[int, int] | None, copy: bool | None
) -> Any:
    if stream is not None:
        raise ValueError("an export to the host takes no stream")
    if copy is False:
        raise BufferError(
            "the array is on a device, and the host needs a copy: leave copy=False out"
        )
    return array.numpy().__dlpack__(max_version=max_version)
