"""Cellar. The driver functions that are not implemented, and the reason that each call reports.

Every function of the driver that no module has entered returns NOT_SUPPORTED with one of these
sentences. No program reaches the functions of `NEVER_NEEDED` by itself: they take an object that
only a refused function makes, or CUDA has withdrawn them.
"""

from __future__ import annotations

import re
from typing import Final

NEVER_NEEDED: Final = (
    (
        r"cuDestroyExternal|cuExternalMemoryGet|cu(Signal|Wait)ExternalSemaphores",
        "it takes an imported object, and nothing can be imported",
    ),
    (
        r"cuGraph(Exec)?(Add)?ExternalSemaphores",
        "it takes an imported semaphore, and nothing can be imported",
    ),
    (r"cuMulticast(Add|Bind|Unbind)", "it takes a multicast object, and there are none"),
    (
        r"cuGraphics(?!.*Register(Image|Buffer|OutputSurface|VideoSurface))|cuEGLStream.*Frame|"
        r"cuEGLStream.*Disconnect|cuGL(Map|Unmap|SetBuffer|Unregister)",
        "it takes a graphics resource, and there are none",
    ),
    (
        r"cuCheckpointOperationComplete|cuCoredumpDeregister|cuLogsUnregister|"
        r"cuDeviceUnregisterAsync|cuLogicalEndpoint(?!Create|IdReserve|GetLimits)|"
        r"cuTensorMapReplaceAddress",
        "it takes an object that only a refused function makes",
    ),
    (
        r"cuProfilerInitialize|cuGLInit|cuGLCtxCreate|cuGLRegisterBufferObject|"
        r"cuLaunchCooperativeKernelMultiDevice",
        "CUDA has taken it out of use",
    ),
)
"""By pattern, at the start of a name: why no program reaches the function."""

REFUSED: Final = (
    (r"cuTensorMap", "bulk copies of tensors (TMA) are not modelled"),
    (r"cuMulticast", "multicast objects are not modelled"),
    (
        r"cuMemGetHandleForAddressRange",
        "memory is handed out by handles of allocations and pools",
    ),
    (
        r"cuImportExternal|cuDeviceGetNvSciSync|cuFlushGPUDirectRDMA",
        "there are no other devices and interfaces to share memory with",
    ),
    (
        r"cuGL|cuEGL|cuVDPAU|cuGraphics|cuEventCreateFromEGLSync",
        "there is no graphics to work together with",
    ),
    (r"cuCheckpoint", "a process cannot be checkpointed"),
    (r"cuCoredump", "a fault is a sentence in cuGetErrorString; there are no core dumps"),
    (r"cuLogs", "what the driver has to say is in cuGetErrorString; there is no log"),
    (r"cuLogicalEndpoint|cuDeviceGet(Fabric|Clique)", "there is no fabric between devices"),
    (r"cuDeviceRegisterAsync", "there is nothing to notify of"),
    (r"cuMemBatchDecompress", "there is no engine that decompresses"),
    (r"cuMemMapArray", "sparse arrays are not modelled"),
    (r"cuOccupancyMax(ActiveClusters|PotentialCluster)", "thread block clusters are not modelled"),
    (r"cuCtxGetExecAffinity", "a context cannot be bound to a part of the device"),
    (r"cuCtxResetPersisting", "no part of the cache is set aside to persist"),
    (r"cuStreamBeginRecapture", "a capture makes a graph or adds to one, and never replaces it"),
    (r"cuLibraryGetManaged", "managed variables are taken for variables like others"),
    (r"cuLibraryGetUnifiedFunction", "device code has no functions that the host can call"),
    (r"cuStream(Begin|End).*Cig", "there is no graphics to capture for"),
)
"""By pattern, at the start of a name: the missing feature."""

UNFORESEEN: Final = "the software GPU does not model it"


def never_needed(name: str) -> str:
    """Why no program reaches the function; "" if a program may."""
    return _first(NEVER_NEEDED, name)


def why_not(name: str) -> str:
    """Why the function is not implemented, as the end of a sentence."""
    return never_needed(name) or _first(REFUSED, name) or UNFORESEEN


def _first(rows: tuple[tuple[str, str], ...], name: str) -> str:
    return next((why for pattern, why in rows if re.match(pattern, name)), "")
