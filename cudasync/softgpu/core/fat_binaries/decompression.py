"""Cellar, core. Unpacks the payload of an entry: raw, an LZ4 block, or a Zstandard frame."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cudasync.softgpu.core.driver_types.result_codes import (
    INVALID_IMAGE,
    NOT_SUPPORTED,
    DriverFailure,
)
from cudasync.softgpu.core.fat_binaries import lz4_blocks, zstandard_frames

if TYPE_CHECKING:
    from cudasync.softgpu.core.fat_binaries.container import Entry

_LZ4: Final = 0x2000
_ZSTANDARD: Final = 0x8000
_BEFORE_CUDA_12: Final = 0x1000
_MOST_BYTES: Final = 1 << 28


def payload_of(entry: Entry) -> bytes:
    """The unpacked bytes of an entry's payload.

    INVALID_IMAGE if they are damaged; NOT_SUPPORTED if there is no decoder.
    """
    if entry.flags & _BEFORE_CUDA_12:
        raise DriverFailure(
            NOT_SUPPORTED,
            "the fat binary has the compression of compilers before CUDA 12: build the program "
            "with CUDA 13",
        )
    if not entry.flags & (_LZ4 | _ZSTANDARD):
        return entry.payload
    if entry.size_bytes > _MOST_BYTES:
        raise _damaged(f"an entry has the impossible size of {entry.size_bytes} bytes")
    try:
        if entry.flags & _LZ4:
            return lz4_blocks.unpack(entry.payload, entry.size_bytes)
        return zstandard_frames.unpack(entry.payload, entry.size_bytes)
    except (lz4_blocks.DamagedBlock, zstandard_frames.DamagedFrame) as problem:
        raise _damaged(str(problem)) from problem
    except zstandard_frames.NoDecoder as problem:
        raise DriverFailure(NOT_SUPPORTED, str(problem)) from problem


def _damaged(why: str) -> DriverFailure:
    return DriverFailure(
        INVALID_IMAGE, f"the fat binary is damaged: {why}; build the program again"
    )
