"""Floor 1. Stream captures that the program has under way: what we do on the side keeps them whole.

While a stream is captured, the driver takes some calls for unsafe: a query of any event, freeing
and allocating memory. It refuses them and invalidates the capture; on which threads, the modes
decide. Our books have nothing to do with what is captured, so they are kept in relaxed mode, in
which a thread answers for itself. That does not cover the captured streams themselves: these
are not asked anything, and no event of ours is recorded on them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cuda.bindings import driver

if TYPE_CHECKING:
    from types import TracebackType

_RELAXED = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
_NONE = driver.CUstreamCaptureStatus.CU_STREAM_CAPTURE_STATUS_NONE


def exchange(mode: Any) -> Any:
    """Set the calling thread's mode; returns the one before. The driver is initialised.

    (cuThreadExchangeStreamCaptureMode)
    """
    return driver.cuThreadExchangeStreamCaptureMode(mode)[1]


class Relaxed:
    """`with Relaxed():` calls inside disturb no capture, but of a stream that they name."""

    __slots__ = ("_before",)

    def __enter__(self) -> None:
        self._before = exchange(_RELAXED)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        exchange(self._before)


def is_captured(raw: Any) -> bool:
    """True if what is enqueued on the stream now goes into a graph; asking disturbs nothing.

    Also of the legacy default stream while a stream that waits for it is captured, and of a stream
    that the driver does not know any more. (cuStreamIsCapturing)
    """
    code, status = driver.cuStreamIsCapturing(raw)
    return bool(code) or status != _NONE
