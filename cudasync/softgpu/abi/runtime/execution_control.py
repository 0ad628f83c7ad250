"""Cellar, abi. Runtime API, Execution Control."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.softgpu.abi.runtime.table import driver_function, forward, runtime_function

if TYPE_CHECKING:
    from cudasync.softgpu.core.machine import Machine

forward(
    """
    cudaFuncSetAttribute pii
    cudaLaunchHostFunc_v2 pppu cuLaunchHostFunc 13010
    """
)


@runtime_function("cudaLaunchHostFunc", "ppp")
def cuda_launch_host_func(machine: Machine, stream: int, function: int, data: int) -> int | None:
    return driver_function("cuLaunchHostFunc", 10000)(machine, stream, function, data)
