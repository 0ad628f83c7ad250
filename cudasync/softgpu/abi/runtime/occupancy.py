"""Cellar, abi. Runtime API, Occupancy."""

from __future__ import annotations

from cudasync.softgpu.abi.runtime.table import forward

forward(
    """
    cudaOccupancyAvailableDynamicSMemPerBlock ppii
    cudaOccupancyMaxActiveBlocksPerMultiprocessor ppiz
    cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags ppizu
    """
)
