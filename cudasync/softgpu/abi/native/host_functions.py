"""Cellar, abi. Host functions of compiled programs: work advances by itself once there is one.

Nothing runs on the software GPU unless a CUDA call waits for it. But a program may wait for its
host function by other means, for instance a condition variable, which the driver cannot see.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from cudasync.softgpu.abi.stub import registry
    from cudasync.softgpu.core.machine import Machine

_ENQUEUE: Final = frozenset(
    {"cudaStreamAddCallback", "cudaLaunchHostFunc", "cudaLaunchHostFunc_v2"}
)


def going_on(entry: registry.Entry) -> registry.Entry:
    """The same function; if it enqueues a host function, work then advances by itself."""
    if entry.name not in _ENQUEUE:
        return entry
    call = entry.call

    def enqueue(machine: Machine, *arguments: int) -> int | None:
        machine.progress.begin()
        return call(machine, *arguments)

    return replace(entry, call=enqueue)
