"""Floor 4. Arrays on a device, and kernels that are called on them."""

from __future__ import annotations

from cudasync.array.array import Array
from cudasync.array.borrowed import from_dlpack
from cudasync.array.copying import copy
from cudasync.array.creation import array, empty, empty_like, zeros, zeros_like
from cudasync.array.crossing import hand_over, take_over
from cudasync.array.foreign import strided
from cudasync.array.fused import elementwise
from cudasync.array.kernels import BoundKernel, Kernel
from cudasync.array.memory.statistics import MemoryStats, empty_cache, memory_stats
from cudasync.array.modules import Module
from cudasync.array.prepared import PreparedLaunch
from cudasync.array.traced.function import graph_function
from cudasync.array.uses import In, InOut, Out

__all__ = [
    "Array",
    "BoundKernel",
    "In",
    "InOut",
    "Kernel",
    "MemoryStats",
    "Module",
    "Out",
    "PreparedLaunch",
    "array",
    "copy",
    "elementwise",
    "empty",
    "empty_cache",
    "empty_like",
    "from_dlpack",
    "graph_function",
    "hand_over",
    "memory_stats",
    "strided",
    "take_over",
    "zeros",
    "zeros_like",
]
