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
        "it takes an imported object, and the software GPU imports none",
    ),
    (
        r"cuGraph(Exec)?(Add)?ExternalSemaphores",
        "it takes an imported semaphore, and the software GPU imports none",
    ),
    (r"cuMulticast(Add|Bind|Unbind)", "it takes a multicast object, and the software GPU has none"),
    (
        r"cuGraphics(?!.*Register(Image|Buffer|OutputSurface|VideoSurface))|cuEGLStream.*Frame|"
        r"cuEGLStream.*Disconnect|cuGL(Map|Unmap|SetBuffer|Unregister)",
        "it takes a graphics resource, and the software GPU has none",
    ),
    (
        r"cuCheckpointOperationComplete|cuCoredumpDeregister|cuLogsUnregister|"
        r"cuDeviceUnregisterAsync|cuLogicalEndpoint(?!Create|IdReserve|GetLimits)|"
        r"cuTensorMapReplaceAddress",
        "it takes an object that only an unsupported function makes",
    ),
    (
        r"cuProfilerInitialize|cuGLInit|cuGLCtxCreate|cuGLRegisterBufferObject|"
        r"cuLaunchCooperativeKernelMultiDevice",
        "CUDA has withdrawn it",
    ),
)
"""By pattern, at the start of a name: why no program reaches the function."""

REFUSED: Final = (
    (r"cuTensorMap", "bulk copies of tensors (TMA) are not modelled"),
    (r"cuMulticast", "multicast objects are not modelled"),
    (
        r"cuMemGetHandleForAddressRange",
        "memory is exported by handles of allocations and pools only",
    ),
    (
        r"cuImportExternal|cuDeviceGetNvSciSync|cuFlushGPUDirectRDMA",
        "memory cannot be shared with other devices and interfaces",
    ),
    (
        r"cuGL|cuEGL|cuVDPAU|cuGraphics|cuEventCreateFromEGLSync",
        "graphics APIs are not modelled",
    ),
    (r"cuCheckpoint", "checkpoints of a process are not modelled"),
    (r"cuCoredump", "there are no core dumps: cuGetErrorString describes a fault"),
    (r"cuLogs", "there is no log: cuGetErrorString has the driver's messages"),
    (r"cuLogicalEndpoint|cuDeviceGet(Fabric|Clique)", "a fabric between devices is not modelled"),
    (r"cuDeviceRegisterAsync", "the software GPU has no events to notify a program of"),
    (r"cuMemBatchDecompress", "a decompression engine is not modelled"),
    (r"cuMemMapArray", "sparse arrays are not modelled"),
    (r"cuOccupancyMax(ActiveClusters|PotentialCluster)", "thread block clusters are not modelled"),
    (r"cuCtxGetExecAffinity", "execution affinity is not modelled"),
    (r"cuCtxResetPersisting", "a persisting L2 cache is not modelled"),
    (r"cuStreamBeginRecapture", "a capture makes or extends a graph, and cannot replace one"),
    (r"cuLibraryGetManaged", "managed variables are treated as ordinary device variables"),
    (r"cuLibraryGetUnifiedFunction", "unified functions are not modelled"),
    (r"cuStream(Begin|End).*Cig", "graphics APIs are not modelled, so no capture is for one"),
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
