"""Cellar. The bounds of a launch that are the same on devices of all compute capabilities.

From the CUDA programming guide's table of technical specifications.
"""

from __future__ import annotations

from typing import Final

MAX_THREADS: Final = 1024
MAX_BLOCK: Final = (1024, 1024, 64)
MAX_GRID: Final = (2**31 - 1, 65535, 65535)
MAX_SHARED_BYTES: Final = 48 << 10
MAX_LOCAL_BYTES: Final = 512 << 10
MAX_PARAMETER_BYTES: Final = 4352
MAX_PARAMETER_BYTES_SINCE_8_1: Final = 32764
MAX_CONSTANT_BYTES: Final = 64 << 10
WARP_SIZE: Final = 32
TEXTURE_ALIGNMENT: Final = 512
"""Of every address that an allocation starts at, and of every array."""
MULTIPROCESSORS: Final = 8
REGISTERS: Final = 65536
