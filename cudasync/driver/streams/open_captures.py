"""Floor 1. Stream captures of the program: internal driver calls must not invalidate them.

While a stream is captured, the driver regards some calls as unsafe: queries of and waits for any
event or stream, allocations and frees, the beginning and end of executable graphs. It refuses them
and invalidates the capture; the modes decide on which threads. The library's internal calls do not
concern the captured work, so they use relaxed mode, in which the thread takes responsibility. That
does not cover the captured streams themselves: they are not queried, and no event of ours is
recorded on them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cuda.bindings import driver

if TYPE_CHECKING:
    from types import TracebackType

_RELAXED = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
_NONE = driver.CUstreamCaptureStatus.CU_STREAM_CAPTURE_STATUS_NONE


def exchange(mode: Any) -> Any:
    """Set the calling thread's mode; return the previous mode, or None if the driver has ended.

    (cuThreadExchangeStreamCaptureMode)
    """
    return driver.cuThreadExchangeStreamCaptureMode(mode)[1]


class Relaxed:
    """`with Relaxed():` calls inside disturb no capture, except of a stream that they name."""

    __slots__ = ("_before",)

    def __enter__(self) -> None:
        self._before = exchange(_RELAXED)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._before is not None:
            exchange(self._before)


def is_captured(raw: Any) -> bool:
    """True if work enqueued on the stream now goes into a graph; the query disturbs nothing.

    Also True for the legacy default stream while a stream that waits for it is captured, and for a
    stream that the driver does not know any more. (cuStreamIsCapturing)
    """
    code, status = driver.cuStreamIsCapturing(raw)
    return bool(code) or status != _NONE
