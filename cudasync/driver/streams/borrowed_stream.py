"""Floor 1. A stream with another owner: a default stream, or another library's stream.

It is entered, recorded and waited for like one of ours, and never destroyed. The object may be
short-lived, so the device keeps the operands of its work, and not the stream.
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
    """The handle of a stream, and the object that must outlive the handle's use."""

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
            # The meaning of its handle depends on the current context.
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
        """Does nothing: the stream belongs to its owner."""

    def _record_tail(self) -> Event:
        return self.record()


def lent(handle: int, device: DeviceLike | None, lender: object) -> BorrowedStream:
    """The stream of a handle, assumed to live as long as `lender`.

    `device` is the device of a default stream. Raises ValueError for a negative handle, CudaError
    for a handle that the driver does not know.
    """
    if handle < 0:
        raise ValueError(f"{handle} is not a stream handle")
    if handle <= PER_THREAD:
        return BorrowedStream(handle, given_device(device), lender)
    return BorrowedStream(handle, device_of_stream(handle), lender)
