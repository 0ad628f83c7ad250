"""Cellar. Functions that no driver has: they end kernels that do not end by themselves.

    CUresult cudasyncNoteInterrupt(void)
    CUresult cudasyncStopKernels(CUdevice device, const char *reason)

The first says that the program was interrupted: a kernel that runs now, and still keeps a thread
waiting a second later, is ended. The second ends all kernels that run on a device. A kernel that is
ended has timed out, with the given reason, so its context has failed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cudasync.softgpu.abi.marshalling.pointers import get_text, need
from cudasync.softgpu.abi.stub.registry import export

if TYPE_CHECKING:
    from cudasync.softgpu.core.machine import Machine

_SIGNATURE: Final = "CUdevice, char const *"


@export("cudasyncNoteInterrupt", signature="void")
def cudasync_note_interrupt(machine: Machine) -> None:
    machine.executor.note_interrupt()


@export("cudasyncStopKernels", signature=_SIGNATURE)
def cudasync_stop_kernels(machine: Machine, device: int, reason: int) -> None:
    need(reason)
    machine.stop_kernels(machine.device(device), get_text(reason))
