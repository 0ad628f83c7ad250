"""Cellar, core. Unpacks a frame of Zstandard with the first available decoder.

Python 3.14 has a module for it. Earlier versions use the system's libzstd, or the `zstandard`
wheel.
"""

from __future__ import annotations

import ctypes
import importlib
from functools import cache
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    Decoder = Callable[[bytes, int], bytes]
    """Unpacks a frame into at most so many bytes; DamagedFrame."""

_LIBRARY: Final = "libzstd.so.1"
_UNKNOWN_SIZE: Final = -1


class DamagedFrame(ValueError):
    """The bytes are no frame of Zstandard, or a frame of another size."""


class NoDecoder(ImportError):
    """The process has no decoder for Zstandard."""


def unpack(frame: bytes, size_bytes: int) -> bytes:
    """The `size_bytes` bytes of a frame; DamagedFrame, or NoDecoder."""
    found = decoder()(frame, size_bytes)
    if len(found) != size_bytes:
        raise DamagedFrame(f"it has {len(found)} bytes, not {size_bytes} as its header says")
    return found


@cache
def decoder() -> Decoder:
    """The first available decoder; NoDecoder says what to install."""
    for make in (of_python, of_system, of_wheel):
        try:
            return make()
        except (ImportError, OSError):
            continue
    raise NoDecoder(
        "the fat binary is compressed with Zstandard: `pip install zstandard`, or build with "
        "`nvcc --compress-mode=speed`"
    )


def of_python() -> Decoder:
    """Python 3.14's decoder; ImportError."""
    module: Any = importlib.import_module("compression.zstd")

    def decode(frame: bytes, size: int) -> bytes:
        try:
            # One byte more than the given size shows a frame that is too long.
            found: bytes = module.ZstdDecompressor().decompress(frame, size + 1)
        except (module.ZstdError, EOFError) as problem:
            raise DamagedFrame(str(problem)) from problem
        return found

    return decode


def of_system() -> Decoder:
    """The system library's decoder, by its stable interface; OSError."""
    library = ctypes.CDLL(_LIBRARY)
    call, is_error = library.ZSTD_decompress, library.ZSTD_isError
    call.restype, is_error.argtypes = ctypes.c_size_t, [ctypes.c_size_t]
    call.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t]

    def decode(frame: bytes, size: int) -> bytes:
        room = ctypes.create_string_buffer(max(1, size))
        count = call(room, size, frame, len(frame))
        if is_error(count):
            raise DamagedFrame("libzstd cannot decompress it")
        return room.raw[:count]

    return decode


def of_wheel() -> Decoder:
    """The decoder of the wheel `zstandard`; ImportError."""
    wheel: Any = importlib.import_module("zstandard")

    def decode(frame: bytes, size: int) -> bytes:
        try:
            # The wheel reserves the size that the frame claims, so the claim is checked first.
            if wheel.frame_content_size(frame) not in (size, _UNKNOWN_SIZE):
                return b""
            found: bytes = wheel.ZstdDecompressor().decompress(frame, max_output_size=size)
        except wheel.ZstdError as problem:
            raise DamagedFrame(str(problem)) from problem
        return found

    return decode
