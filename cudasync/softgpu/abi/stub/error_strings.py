"""Cellar. The answers of cuGetErrorName and cuGetErrorString.

Names are those of the bindings' own enum. The string for a code is the sentence of the last call
that failed with it, if the core gave one (the kernel, line and address of a fault). Otherwise the
string is a few plain words.
"""

from __future__ import annotations

import ctypes
import sys
import threading
from collections import deque
from typing import Final

from cuda.bindings import driver

from cudasync.softgpu.core.driver_types.result_codes import INVALID_VALUE, DriverFailure

_WORDS: Final = {
    0: "no error",
    1: "invalid argument",
    2: "out of memory",
    3: "cuInit has not been called",
    4: "the driver is shutting down",
    100: "no device is available",
    101: "invalid device ordinal",
    200: "the module image is not valid",
    201: "invalid device context",
    209: "no code in the image can run on this device: the software GPU runs PTX only",
    217: "these devices have no access to each other's memory",
    218: "the PTX is not valid",
    301: "file not found",
    400: "invalid resource handle",
    401: "a resource is in a state that does not permit the call",
    500: "named symbol not found",
    600: "device not ready",
    700: "an illegal memory access was encountered",
    702: "the launch timed out and was terminated",
    710: "a device-side assert was triggered",
    715: "an illegal instruction was encountered",
    716: "misaligned address",
    719: "the launch failed",
    800: "the operation is not permitted",
    801: "the operation is not supported by the software GPU",
    900: "not permitted while a stream is being captured",
    901: "an earlier error invalidated the capture",
    902: "the call would have merged two captures",
    903: "the capture did not begin on this stream",
    904: "a stream that was forked into the capture was not joined",
    905: "captured work would have depended on work outside the capture",
    906: "the legacy default stream would have depended on a captured stream",
    907: "the event was last recorded in a captured stream",
    908: "another thread began the capture",
    910: "the executable graph cannot be updated to this graph",
    999: "unknown error",
}

# Faults of kernels, deadlocks, machine code, and link errors.
_OF_KERNELS: Final = frozenset({209, 401, 700, 702, 710, 716, 719, 999})

# Strings handed out stay valid for a while after they are replaced.
_kept: deque[ctypes.Array[ctypes.c_char]] = deque(maxlen=256)
_fixed: dict[str, ctypes.Array[ctypes.c_char]] = {}


def name_of(code: int) -> str:
    """CUDA_ERROR_...; DriverFailure for a number that is no result code."""
    try:
        name: str = driver.CUresult(code).name
    except ValueError:
        raise DriverFailure(INVALID_VALUE, f"{code} is not a result code") from None
    return name


def words_of(code: int) -> str:
    """A few plain words for a code."""
    name = name_of(code)
    return _WORDS.get(code) or name.removeprefix("CUDA_ERROR_").replace("_", " ").lower()


def fixed_address(text: str) -> int:
    """The address of a C string that stays for ever."""
    buffer = _fixed.get(text)
    if buffer is None:
        buffer = _fixed.setdefault(text, ctypes.create_string_buffer(text.encode()))
    return ctypes.addressof(buffer)


def passing_address(text: str) -> int:
    """The address of a C string that stays valid while the next 255 are handed out."""
    buffer = ctypes.create_string_buffer(text.encode())
    _kept.append(buffer)
    return ctypes.addressof(buffer)


class _Here(threading.local):
    """The calling thread's last sentence for each code."""

    def __init__(self) -> None:
        self.details: dict[int, str] = {}


class Details:
    """The core's last sentence for each code.

    A thread gets the sentence of its own last failure with a code. If it had none, it gets the last
    failure of any thread.

    With `report`, faults of kernels and modules also go to stderr, each once: cuda.core and
    numba-cuda show a code, and never ask for its string.
    """

    def __init__(self, *, report: bool) -> None:
        self._details: dict[int, str] = {}
        self._here = _Here()
        self._report = report
        # The thread that wins `setdefault` reports, so that two threads do not report the same.
        self._told: dict[str, object] = {}

    def note(self, failure: DriverFailure) -> None:
        """Remember the sentence of a failed call, even if it is empty."""
        detail = failure.detail
        self._here.details[failure.code] = self._details[failure.code] = detail
        if not self._report or not detail or detail in self._told:
            return
        if failure.code in _OF_KERNELS or detail.startswith(("ptxas", "nvlink")):
            if self._told.setdefault(detail, failure) is not failure:
                return
            sys.stderr.write(f"cudasync software GPU: {name_of(failure.code)}: {detail}\n")

    def text(self, code: int) -> str:
        """The sentence for a code."""
        return self._here.details.get(code, self._details.get(code)) or words_of(code)
