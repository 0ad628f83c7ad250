"""Cellar. The bounds of a launch that are the same in every compute capability.

Source: the CUDA programming guide's table of technical specifications. The guide and the driver
API's manual describe the alignments of textures and give no numbers. GPUs report them as device
attributes: published outputs of NVIDIA's sample deviceQuery have 512 for a GTX 1650 (7.5) and for
GPUs of 100 KiB of shared memory a multiprocessor (8.6, 8.9), and PyCUDA has 512 and 32 for a P100.
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
TEXTURE_PITCH_ALIGNMENT: Final = 32
"""The distance of rows of a texture in linear memory is a multiple of this."""
MULTIPROCESSORS: Final = 8
REGISTERS: Final = 65536
