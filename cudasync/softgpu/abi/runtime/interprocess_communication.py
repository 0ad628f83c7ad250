"""Cellar, abi. Runtime API, Device Management: memory, events and pools of other processes."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

from cudasync.softgpu.abi.marshalling.structures_by_value import by_value
from cudasync.softgpu.abi.runtime.table import driver_function, forward, runtime_function

if TYPE_CHECKING:
    from cudasync.softgpu.core.machine import Machine


class _Handle(ctypes.Structure):
    """cudaIpcMemHandle_t and cudaIpcEventHandle_t: the driver's handles, passed by value."""

    _fields_ = (("words", ctypes.c_uint64 * 8),)


forward(
    """
    cudaIpcCloseMemHandle p
    cudaIpcGetEventHandle pp
    cudaIpcGetMemHandle pp
    cudaMemPoolExportPointer pp
    cudaMemPoolExportToShareableHandle ppiu
    cudaMemPoolImportFromShareableHandle ppiu
    cudaMemPoolImportPointer ppp
    """
)


def _forward_by_value(name: str, kinds: str) -> None:
    """Enter a function whose handle lies on the stack in the same place as the driver's."""

    def call(machine: Machine, *words: int) -> int | None:
        return driver_function("cu" + name.removeprefix("cuda"))(machine, *words)

    c_arguments, _ = by_value(kinds, _Handle)
    runtime_function(name, kinds, c_arguments=c_arguments)(call)


_forward_by_value("cudaIpcOpenMemHandle", "pSu")
_forward_by_value("cudaIpcOpenEventHandle", "pS")
