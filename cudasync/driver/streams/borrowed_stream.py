"""Floor 1. A stream that somebody else owns: a default stream, or another library's.

It is entered, recorded and waited for like one of ours, and never destroyed. This object is
nobody's for long, so what work on it still uses is kept by the device and not by the stream.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cuda.bindings import driver

from cudasync.driver.interchange.protocols import device_of_stream
from cudasync.driver.result import failure
from cudasync.driver.streams.current_streams import given_device
from cudasync.driver.streams.open_captures import is_captured
from cudasync.driver.streams.stream import Stream

if TYPE_CHECKING:
    from cudasync.driver.device import Device, DeviceLike
    from cudasync.driver.streams.event import Event

LEGACY = 1
PER_THREAD = 2


class BorrowedStream(Stream):
    """The handle of a stream, and what must not go before it."""

    __slots__ = ("_is_default", "_lender")

    def __init__(self, handle: int, device: Device | None, lender: object = None) -> None:
        self.fixed_device = device
        self.priority = 0
        self._raw = driver.CUstream(handle)
        self._owned = None
        self.workspace = None
        self._is_default = handle <= PER_THREAD
        self._lender = lender

    @property
    def handle(self) -> int:
        return int(self._raw)

    @property
    def is_closed(self) -> bool:
        return False

    @property
    def is_owned(self) -> bool:
        return False

    def enter(self) -> Any:
        if self._is_default:
            # What its handle means depends on the context that is current.
            self.device.context.enter_anew()
        else:
            self.device.context.enter()
        return self._raw

    def synchronize(self) -> None:
        code = driver.cuStreamSynchronize(self.enter())[0]
        if code:
            raise failure(code, "cuStreamSynchronize")

    def keep(self, operand: object, size_bytes: int = 0) -> None:
        if not is_captured(self._raw):
            self.device.context.keep_behind(self.record(), operand)

    def close(self) -> None:
        """It stays as it is."""

    def _record_tail(self) -> Event:
        return self.record()


def lent(handle: int, device: DeviceLike | None, lender: object) -> BorrowedStream:
    """The stream of that handle, which lives as long as `lender` as far as is known.

    `device` is whose default stream is meant by one. Raises ValueError for a negative handle,
    CudaError for one that the driver does not know.
    """
    if handle < 0:
        raise ValueError(f"{handle} is not the handle of a stream")
    if handle <= PER_THREAD:
        return BorrowedStream(handle, given_device(device), lender)
    return BorrowedStream(handle, device_of_stream(handle), lender)
