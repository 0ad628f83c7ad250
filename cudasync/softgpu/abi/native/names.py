"""Cellar, abi. The symbols of the runtime's library, and which of them are per-thread forms.

The names are those of the runtime API's reference, and those of cuda_runtime_api.h and
crt/host_runtime.h, which programs of every CUDA compiler call.
"""

from __future__ import annotations

import re
from typing import Final

from cuda.bindings import cyruntime

from cudasync.softgpu.abi.runtime.chapters import entries

# Functions that cuda.bindings does not have.
_OTHERS: Final = """
__cudaGetKernel __cudaInitModule __cudaLaunchKernel __cudaRegisterHostVar
__cudaRegisterUnifiedTable cudaGLMapBufferObject cudaGLMapBufferObjectAsync
cudaGLRegisterBufferObject cudaGLSetBufferObjectMapFlags cudaGLSetGLDevice cudaGLUnmapBufferObject
cudaGLUnmapBufferObjectAsync cudaGLUnregisterBufferObject cudaGetFuncBySymbol cudaGetSymbolAddress
cudaGetSymbolSize cudaGraphAddMemcpyNodeFromSymbol cudaGraphAddMemcpyNodeToSymbol
cudaGraphExecMemcpyNodeSetParamsFromSymbol cudaGraphExecMemcpyNodeSetParamsToSymbol
cudaGraphMemcpyNodeSetParamsFromSymbol cudaGraphMemcpyNodeSetParamsToSymbol
cudaLaunchCooperativeKernel cudaLaunchKernel cudaLaunchKernelExC cudaMemcpyFromSymbol
cudaMemcpyFromSymbolAsync cudaMemcpyToSymbol cudaMemcpyToSymbolAsync cudaOccupancyMaxActiveClusters
cudaOccupancyMaxPotentialClusterSize cudaSetValidDevices
"""
_PER_THREAD: Final = {
    "_ptds": """
cudaMemcpy cudaMemcpy2D cudaMemcpy2DArrayToArray cudaMemcpy2DFromArray cudaMemcpy2DToArray
cudaMemcpy3D cudaMemcpy3DPeer cudaMemcpyArrayToArray cudaMemcpyFromArray cudaMemcpyFromSymbol
cudaMemcpyToArray cudaMemcpyToSymbol cudaMemset cudaMemset2D cudaMemset3D
""",
    "_ptsz": """
__cudaLaunchKernel cudaEventRecord cudaEventRecordWithFlags cudaFreeAsync cudaGetDriverEntryPoint
cudaGetDriverEntryPointByVersion cudaGraphInstantiateWithParams cudaGraphLaunch cudaGraphUpload
cudaLaunchCooperativeKernel cudaLaunchHostFunc cudaLaunchHostFunc_v2 cudaLaunchKernel
cudaLaunchKernelExC cudaMallocAsync cudaMallocFromPoolAsync cudaMemDiscardAndPrefetchBatchAsync
cudaMemDiscardBatchAsync cudaMemPrefetchAsync cudaMemPrefetchBatchAsync cudaMemcpy2DAsync
cudaMemcpy2DFromArrayAsync cudaMemcpy2DToArrayAsync cudaMemcpy3DAsync cudaMemcpy3DBatchAsync
cudaMemcpy3DPeerAsync cudaMemcpy3DWithAttributesAsync cudaMemcpyAsync cudaMemcpyBatchAsync
cudaMemcpyFromArrayAsync cudaMemcpyFromSymbolAsync cudaMemcpyToArrayAsync cudaMemcpyToSymbolAsync
cudaMemcpyWithAttributesAsync cudaMemset2DAsync cudaMemset3DAsync cudaMemsetAsync
cudaSignalExternalSemaphoresAsync cudaStreamAddCallback cudaStreamAttachMemAsync
cudaStreamBeginCapture cudaStreamBeginCaptureToGraph cudaStreamBeginRecaptureToGraph
cudaStreamCopyAttributes cudaStreamEndCapture cudaStreamGetAttribute cudaStreamGetCaptureInfo
cudaStreamGetDevResource cudaStreamGetDevice cudaStreamGetFlags cudaStreamGetId
cudaStreamGetPriority cudaStreamIsCapturing cudaStreamQuery cudaStreamSetAttribute
cudaStreamSynchronize cudaStreamUpdateCaptureDependencies cudaStreamWaitEvent
cudaWaitExternalSemaphoresAsync
""",
}
_SUFFIX: Final = re.compile("_pt[ds][sz]$")


def runtime_names() -> list[str]:
    """The functions that Python serves, with their per-thread forms, in the order of the slots."""
    known = {name for name in cyruntime.__pyx_capi__ if re.match("cuda[A-Z]", name)}
    names = {*known, *entries(), *_OTHERS.split()}
    for suffix, of_streams in _PER_THREAD.items():
        names.update(name + suffix for name in of_streams.split())
    return sorted(names)


def form_of(symbol: str) -> tuple[str, bool]:
    """The function of a symbol, and whether the symbol is the per-thread form."""
    name = _SUFFIX.sub("", symbol)
    return name, name != symbol
