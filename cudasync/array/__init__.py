"""Floor 4. Arrays on a device, and kernels that are called on them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync import late

if TYPE_CHECKING:
    from cudasync.array.array import Array
    from cudasync.array.copies.copy import copy
    from cudasync.array.creation import array, empty, empty_like, zeros, zeros_like
    from cudasync.array.fused import elementwise
    from cudasync.array.interchange.cuda_array_interface import strided
    from cudasync.array.interchange.dlpack_import import from_dlpack
    from cudasync.array.interchange.external_streams import hand_over, take_over
    from cudasync.array.kernels.kernel import BoundKernel, Kernel
    from cudasync.array.kernels.launch_accesses import In, InOut, Out
    from cudasync.array.kernels.modules import Module
    from cudasync.array.kernels.prepared_launch import PreparedLaunch
    from cudasync.array.memory.statistics import MemoryStats, empty_cache, memory_stats
    from cudasync.array.traced.function import graph_function

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

if not TYPE_CHECKING:  # With `__getattr__` a type checker would accept any name.
    __getattr__ = late.names(
        __name__,
        {
            "array": ("Array",),
            "copies.copy": ("copy",),
            "creation": ("array", "empty", "empty_like", "zeros", "zeros_like"),
            "fused": ("elementwise",),
            "interchange.cuda_array_interface": ("strided",),
            "interchange.dlpack_import": ("from_dlpack",),
            "interchange.external_streams": ("hand_over", "take_over"),
            "kernels.kernel": ("BoundKernel", "Kernel"),
            "kernels.launch_accesses": ("In", "InOut", "Out"),
            "kernels.modules": ("Module",),
            "kernels.prepared_launch": ("PreparedLaunch",),
            "memory.statistics": ("MemoryStats", "empty_cache", "memory_stats"),
            "traced.function": ("graph_function",),
        },
    )
