"""Cellar, abi. Runtime API, Event Management."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.softgpu.abi.marshalling.pointers import need
from cudasync.softgpu.abi.runtime.table import driver_function, forward, runtime_function

if TYPE_CHECKING:
    from cudasync.softgpu.core.machine import Machine

forward(
    """
    cudaEventCreateWithFlags pu cuEventCreate
    cudaEventDestroy p
    cudaEventElapsedTime ppp
    cudaEventQuery p
    cudaEventRecord pp
    cudaEventRecordWithFlags ppu
    cudaEventSynchronize p
    """
)


@runtime_function("cudaEventCreate", "p")
def cuda_event_create(machine: Machine, event: int) -> int | None:
    need(event)
    return driver_function("cuEventCreate")(machine, event, 0)
