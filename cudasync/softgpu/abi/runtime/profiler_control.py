"""Cellar, abi. Runtime API, Profiler Control."""

from __future__ import annotations

from cudasync.softgpu.abi.runtime.table import forward

forward(
    """
    cudaProfilerStart -
    cudaProfilerStop -
    """
)
