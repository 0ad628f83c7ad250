"""Cellar, abi. Runtime API, Stream Management."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.softgpu.abi.marshalling.pointers import need
from cudasync.softgpu.abi.runtime.table import driver_function, forward, runtime_function

if TYPE_CHECKING:
    from cudasync.softgpu.core.machine import Machine

forward(
    """
    cudaStreamAddCallback pppu
    cudaStreamAttachMemAsync ppzu
    cudaStreamBeginCapture pi cuStreamBeginCapture 10010
    cudaStreamBeginCaptureToGraph ppppzi
    cudaStreamCopyAttributes pp
    cudaStreamCreateWithFlags pu cuStreamCreate
    cudaStreamCreateWithPriority pui
    cudaStreamDestroy p
    cudaStreamEndCapture pp
    cudaStreamGetAttribute pip
    cudaStreamGetCaptureInfo ppppppp cuStreamGetCaptureInfo 12030
    cudaStreamGetDevice pp
    cudaStreamGetFlags pp
    cudaStreamGetId pp
    cudaStreamGetPriority pp
    cudaStreamIsCapturing pp
    cudaStreamQuery p
    cudaStreamSetAttribute pip
    cudaStreamSynchronize p
    cudaStreamUpdateCaptureDependencies pppzu cuStreamUpdateCaptureDependencies 12030
    cudaStreamWaitEvent ppu
    cudaThreadExchangeStreamCaptureMode p
    """
)


@runtime_function("cudaStreamCreate", "p")
def cuda_stream_create(machine: Machine, stream: int) -> int | None:
    need(stream)
    return driver_function("cuStreamCreate")(machine, stream, 0)
