"""Floor 1. The stream of a call: the given stream, the current stream, or a default stream."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.driver.device import Device, as_device
from cudasync.driver.streams.borrowed_stream import LEGACY, PER_THREAD, BorrowedStream
from cudasync.driver.streams.current_streams import current_device, entered
from cudasync.driver.streams.stream import Stream

if TYPE_CHECKING:
    from cudasync.driver.device import DeviceLike
    from cudasync.driver.streams.stream import StreamLike

LEGACY_STREAM: Stream = BorrowedStream(LEGACY, None)
"""The legacy default stream of the current device: it and blocking streams wait for each other."""

PER_THREAD_STREAM: Stream = BorrowedStream(PER_THREAD, None)
"""The per-thread default stream of the current device, one for each thread that uses it."""

_legacy: dict[Device, Stream] = {}


def current_stream(device: DeviceLike | None = None) -> Stream:
    """The innermost stream of `device` entered with `with` here, else its legacy default stream.

    Without a device: the innermost stream of all, else the current device's legacy default stream.
    """
    here = entered.get()
    if device is None:
        if here is not None:
            return here.stream
        device = current_device()
    elif type(device) is not Device:
        device = as_device(device)
    while here is not None:
        if here.stream.fixed_device is device:
            return here.stream
        here = here.outer
    found = _legacy.get(device)
    return found or _legacy.setdefault(device, BorrowedStream(LEGACY, device))


def as_stream(stream: StreamLike | None, device: Device | None = None) -> Stream:
    """`stream` as a Stream: the current one for None, another library's as borrowed.

    `device` is the device of a default stream. Raises TypeError for anything without
    `__cuda_stream__`.
    """
    if isinstance(stream, Stream):
        return stream
    if stream is None:
        return current_stream(device)
    return Stream.from_object(stream, device)
