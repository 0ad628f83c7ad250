"""Cellar. A function that no driver has: it changes the scheduler, in the same process.

    CUresult cudasyncSchedule(const char *scheduler)

The argument is "fifo" or "seed=N", as in CUDASYNC_SOFTGPU_SCHEDULER; an empty one means the
process's own scheduler. All work is finished first, so that later work has the same order for the
same seed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.softgpu.abi.marshalling.pointers import get_text
from cudasync.softgpu.abi.stub.registry import export
from cudasync.softgpu.core.driver_types.result_codes import (
    INVALID_VALUE,
    NOT_SUPPORTED,
    DriverFailure,
)
from cudasync.softgpu.core.scheduling.executor import Executor
from cudasync.softgpu.core.scheduling.scheduler import make_scheduler

if TYPE_CHECKING:
    from cudasync.softgpu.core.machine import Machine


@export("cudasyncSchedule", signature="char const *")
def cudasync_schedule(machine: Machine, scheduler: int) -> None:
    executor = machine.executor
    if type(executor) is not Executor:
        raise DriverFailure(
            NOT_SUPPORTED,
            "the scheduler is threaded, or a check or exploration is running",
        )
    text = get_text(scheduler) if scheduler else ""
    try:
        chosen = make_scheduler(text) if text else executor.own_scheduler
    except ValueError as error:
        raise DriverFailure(INVALID_VALUE, str(error)) from None
    for context in machine.contexts:
        if not context.error:
            machine.streams.synchronize_context(context)
    executor.scheduler = chosen
