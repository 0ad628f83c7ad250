"""Stream capture in tests: the calls, and the check of an invalidated capture."""

from __future__ import annotations

from cuda.bindings import driver
from helpers.driver.call_results import ok
from helpers.driver.graph_builder import CODES, code

MODES = driver.CUstreamCaptureMode
GLOBAL, RELAXED = (
    MODES.CU_STREAM_CAPTURE_MODE_GLOBAL,
    MODES.CU_STREAM_CAPTURE_MODE_RELAXED,
)
THREAD_LOCAL = MODES.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
ACTIVE = driver.CUstreamCaptureStatus.CU_STREAM_CAPTURE_STATUS_ACTIVE
NONE = driver.CUstreamCaptureStatus.CU_STREAM_CAPTURE_STATUS_NONE
INVALIDATED = driver.CUstreamCaptureStatus.CU_STREAM_CAPTURE_STATUS_INVALIDATED
UNSUPPORTED = CODES.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED


def begin(stream, mode=GLOBAL):
    ok(driver.cuStreamBeginCapture(stream, mode))


def end(stream):
    return ok(driver.cuStreamEndCapture(stream))


def status(stream):
    return ok(driver.cuStreamIsCapturing(stream))


def is_invalid_until_its_end(stream):
    """True if the capture is invalidated, and ending it gives the documented error."""
    assert status(stream) == INVALIDATED
    ended = driver.cuStreamEndCapture(stream)
    assert int(ended[1] or 0) == 0
    return code(ended) == CODES.CUDA_ERROR_STREAM_CAPTURE_INVALIDATED and status(stream) == NONE
