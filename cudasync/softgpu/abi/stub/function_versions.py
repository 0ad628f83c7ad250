"""Cellar. Names of driver functions, and the successive forms that CUDA gave them.

A client asks for a function by its name and a version of CUDA, and gets the newest form that is not
newer. Libraries that are linked with the driver ask for a symbol instead: the first form has the
plain name, the second `_v2`, and so on. The suffixes `_ptsz` and `_ptds` mark the forms that take
the per-thread default stream instead of the legacy one. The facts are from cuda.h and
cudaTypedefs.h. Functions with one form are not listed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

# The versions that brought the forms, and the functions with those forms.
_ROWS: Final = (
    (
        (2000, 3020),
        "cuArray3DCreate cuArray3DGetDescriptor cuArrayCreate cuArrayGetDescriptor "
        "cuDeviceTotalMem cuGLCtxCreate cuGLMapBufferObject cuMemAlloc cuMemAllocHost "
        "cuMemAllocPitch cuMemFree cuMemGetAddressRange cuMemGetInfo cuMemcpy2D cuMemcpy2DAsync "
        "cuMemcpy2DUnaligned cuMemcpy3D cuMemcpy3DAsync cuMemcpyAtoA cuMemcpyAtoD cuMemcpyAtoH "
        "cuMemcpyAtoHAsync cuMemcpyDtoA cuMemcpyDtoD cuMemcpyDtoH cuMemcpyDtoHAsync "
        "cuMemcpyHtoA cuMemcpyHtoAAsync cuMemcpyHtoD cuMemcpyHtoDAsync cuMemsetD16 "
        "cuMemsetD2D16 cuMemsetD2D32 cuMemsetD2D8 cuMemsetD32 cuMemsetD8 cuModuleGetGlobal "
        "cuTexRefGetAddress cuTexRefSetAddress",
    ),
    ((2020, 3020), "cuMemHostGetDevicePointer"),
    ((2030, 3020), "cuGLMapBufferObjectAsync"),
    ((3000, 3020), "cuGraphicsResourceGetMappedPointer cuMemcpyDtoDAsync"),
    ((3010, 3020), "cuVDPAUCtxCreate"),
    ((2020, 3020, 4010), "cuTexRefSetAddress2D"),
    ((2000, 4000), "cuCtxDestroy cuCtxPopCurrent cuCtxPushCurrent cuEventDestroy cuStreamDestroy"),
    ((2000, 3020, 11040, 12050), "cuCtxCreate"),
    ((2000, 12080), "cuEventElapsedTime"),
    ((2000, 13000), "cuCtxGetDevice cuCtxSynchronize"),
    ((3000, 6050), "cuGraphicsResourceSetMapFlags"),
    ((4000, 6050), "cuMemHostRegister"),
    ((4010, 6050), "cuGLGetDevices"),
    ((5050, 6050), "cuLinkAddData cuLinkAddFile cuLinkCreate"),
    ((4010, 11000), "cuIpcOpenMemHandle"),
    (
        (7000, 11000),
        "cuDevicePrimaryCtxRelease cuDevicePrimaryCtxReset cuDevicePrimaryCtxSetFlags",
    ),
    ((8000, 11070), "cuStreamBatchMemOp cuStreamWaitValue32 cuStreamWriteValue32"),
    ((9000, 11070), "cuStreamWaitValue64 cuStreamWriteValue64"),
    ((8000, 12020), "cuMemAdvise cuMemPrefetchAsync"),
    ((9020, 11040), "cuDeviceGetUuid"),
    ((9020, 12050), "cuStreamGetCtx"),
    ((10000, 10010), "cuStreamBeginCapture"),
    ((10000, 11000, 12000), "cuGraphInstantiate"),
    (
        (10000, 12000),
        "cuGraphAddKernelNode cuGraphKernelNodeGetParams cuGraphKernelNodeSetParams",
    ),
    ((10010, 12000), "cuGraphExecKernelNodeSetParams"),
    ((10020, 12000), "cuGraphExecUpdate"),
    (
        (10000, 12030),
        "cuGraphAddDependencies cuGraphGetEdges cuGraphNodeGetDependencies "
        "cuGraphNodeGetDependentNodes cuGraphRemoveDependencies",
    ),
    ((10010, 11030, 12030), "cuStreamGetCaptureInfo"),
    ((10000, 13010), "cuLaunchHostFunc"),
    ((11030, 12000), "cuGetProcAddress"),
    ((11030, 12030), "cuStreamUpdateCaptureDependencies"),
    ((12010, 13010), "cuMulticastBindAddr cuMulticastBindMem"),
    ((12020, 12030, 13040), "cuGraphAddNode"),
    ((12020, 13040), "cuGraphNodeSetParams"),
    ((12080, 13000), "cuMemcpy3DBatchAsync cuMemcpyBatchAsync"),
)
FORMS: Final = {name: versions for versions, names in _ROWS for name in names.split()}
# Since CUDA 12 this name stands for cuGraphInstantiateWithFlags, and has no symbol of its own.
_WITHOUT_SYMBOL: Final = frozenset({("cuGraphInstantiate", 12000)})

# The suffix of the per-thread form: with a stream argument, and without.
_PER_THREAD: Final = (
    (
        "_ptsz",
        "cuEventRecord cuEventRecordWithFlags cuFabricCpyBatchAsync cuGLMapBufferObjectAsync "
        "cuGetProcAddress cuGraphInstantiateWithParams cuGraphLaunch cuGraphUpload "
        "cuGraphicsMapResources cuGraphicsUnmapResources cuLaunchCooperativeKernel "
        "cuLaunchHostFunc cuLaunchKernel cuLaunchKernelEx cuMemAllocAsync "
        "cuMemAllocFromPoolAsync cuMemBatchDecompressAsync cuMemDiscardAndPrefetchBatchAsync "
        "cuMemDiscardBatchAsync cuMemFreeAsync cuMemMapArrayAsync cuMemPrefetchAsync "
        "cuMemPrefetchBatchAsync cuMemcpy2DAsync cuMemcpy3DAsync cuMemcpy3DBatchAsync "
        "cuMemcpy3DPeerAsync cuMemcpy3DWithAttributesAsync cuMemcpyAsync cuMemcpyAtoHAsync "
        "cuMemcpyBatchAsync cuMemcpyDtoDAsync cuMemcpyDtoHAsync cuMemcpyHtoAAsync "
        "cuMemcpyHtoDAsync cuMemcpyPeerAsync cuMemcpyWithAttributesAsync cuMemsetD16Async "
        "cuMemsetD2D16Async cuMemsetD2D32Async cuMemsetD2D8Async cuMemsetD32Async "
        "cuMemsetD8Async cuSignalExternalSemaphoresAsync cuStreamAddCallback "
        "cuStreamAttachMemAsync cuStreamBatchMemOp cuStreamBeginCapture "
        "cuStreamBeginCaptureToCig cuStreamBeginCaptureToGraph cuStreamBeginRecaptureToGraph "
        "cuStreamCopyAttributes cuStreamEndCapture cuStreamEndCaptureToCig cuStreamGetAttribute "
        "cuStreamGetCaptureInfo cuStreamGetCtx cuStreamGetDevResource cuStreamGetDevice "
        "cuStreamGetFlags cuStreamGetId cuStreamGetPriority cuStreamIsCapturing cuStreamQuery "
        "cuStreamSetAttribute cuStreamSynchronize cuStreamUpdateCaptureDependencies "
        "cuStreamWaitEvent cuStreamWaitValue32 cuStreamWaitValue64 cuStreamWriteValue32 "
        "cuStreamWriteValue64 cuWaitExternalSemaphoresAsync",
    ),
    (
        "_ptds",
        "cuGLMapBufferObject cuMemcpy cuMemcpy2D cuMemcpy2DUnaligned cuMemcpy3D cuMemcpy3DPeer "
        "cuMemcpyAtoA cuMemcpyAtoD cuMemcpyAtoH cuMemcpyDtoA cuMemcpyDtoD cuMemcpyDtoH "
        "cuMemcpyHtoA cuMemcpyHtoD cuMemcpyPeer cuMemsetD16 cuMemsetD2D16 cuMemsetD2D32 "
        "cuMemsetD2D8 cuMemsetD32 cuMemsetD8",
    ),
)
_SUFFIXES: Final = {name: suffix for suffix, names in _PER_THREAD for name in names.split()}
# CUDA 7 brought the per-thread default stream. Of the forms until then, only the last has one.
_PER_THREAD_SINCE: Final = 7000
ANY_VERSION: Final = 0
"""The version of functions that have one form."""


def form(name: str, version: int) -> int | None:
    """The newest form of a function that is not newer than `version`; None if all are newer."""
    versions = FORMS.get(name)
    if versions is None:
        return ANY_VERSION
    return max((each for each in versions if each <= version), default=None)


def has_narrow(name: str, version: int) -> bool:
    """True for a form with 32-bit addresses and sizes, as before CUDA 3.2."""
    return version < 3020 and 3020 in FORMS.get(name, ()) and name != "cuCtxCreate"


def has_per_thread(name: str) -> bool:
    """True for a function that uses the default stream if no stream is given."""
    return name in _SUFFIXES


def symbols(name: str) -> Iterator[tuple[str, int, bool]]:
    """The symbols of a function in a driver: symbol, form, and whether it is per-thread."""
    versions = FORMS.get(name, (ANY_VERSION,))
    last_old = max((each for each in versions if each <= _PER_THREAD_SINCE), default=None)
    for number, version in enumerate(versions, 1):
        if (name, version) in _WITHOUT_SYMBOL:
            continue
        symbol = name if number == 1 else f"{name}_v{number}"
        yield symbol, version, False
        if name in _SUFFIXES and (version > _PER_THREAD_SINCE or version == last_old):
            yield symbol + _SUFFIXES[name], version, True
