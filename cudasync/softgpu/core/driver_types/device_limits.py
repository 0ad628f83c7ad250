"""Cellar. The bounds of a launch that are the same in every compute capability.

Source: the CUDA programming guide's table of technical specifications.
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
"""Every allocation and every array starts at a multiple of this."""
MULTIPROCESSORS: Final = 8
REGISTERS: Final = 65536
