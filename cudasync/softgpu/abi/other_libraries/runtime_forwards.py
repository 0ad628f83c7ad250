"""Cellar, abi. Functions of the runtime API that are functions of the driver under another name.

Their arguments are the driver's, in its order, and structures that both describe are laid out
alike: so a call goes on as it came.
"""

from __future__ import annotations

from typing import Final

# A line: the runtime's name and its arguments; then the driver's function, where cu in place of
# cuda does not name it, and the version of its form, where it has several.
# Arguments: p a pointer or handle, z a size_t, i an int or enum, u an unsigned int, l 64 bits.
_ROWS: Final = """
cudaArrayGetMemoryRequirements ppi
cudaArrayGetPlane ppu
cudaArrayGetSparseProperties pp
cudaDeviceGetStreamPriorityRange pp cuCtxGetStreamPriorityRange
cudaDeviceGetLimit pi cuCtxGetLimit
cudaDeviceSetLimit iz cuCtxSetLimit
cudaDeviceGetCacheConfig p cuCtxGetCacheConfig
cudaDeviceSetCacheConfig i cuCtxSetCacheConfig
cudaDeviceGetDefaultMemPool pi
cudaDeviceGetMemPool pi
cudaDeviceSetMemPool ip
cudaDeviceGetGraphMemAttribute iip
cudaDeviceSetGraphMemAttribute iip
cudaDeviceGraphMemTrim i
cudaEventCreateWithFlags pu cuEventCreate
cudaEventDestroy p
cudaEventElapsedTime ppp
cudaEventQuery p
cudaEventRecord pp
cudaEventRecordWithFlags ppu
cudaEventSynchronize p
cudaFreeAsync pp cuMemFreeAsync
cudaFuncSetAttribute pii
cudaGetMipmappedArrayLevel ppu cuMipmappedArrayGetLevel
cudaGetTextureObjectResourceViewDesc pp cuTexObjectGetResourceViewDesc
cudaGraphAddChildGraphNode pppzp
cudaGraphAddDependencies ppppz cuGraphAddDependencies 12030
cudaGraphAddEmptyNode pppz
cudaGraphAddEventRecordNode pppzp
cudaGraphAddEventWaitNode pppzp
cudaGraphAddHostNode pppzp
cudaGraphAddKernelNode pppzp
cudaGraphAddMemAllocNode pppzp
cudaGraphAddMemFreeNode pppzp
cudaGraphChildGraphNodeGetGraph pp
cudaGraphClone pp
cudaGraphCreate pu
cudaGraphDebugDotPrint ppu
cudaGraphDestroy p
cudaGraphDestroyNode p
cudaGraphEventRecordNodeGetEvent pp
cudaGraphEventRecordNodeSetEvent pp
cudaGraphEventWaitNodeGetEvent pp
cudaGraphEventWaitNodeSetEvent pp
cudaGraphExecChildGraphNodeSetParams ppp
cudaGraphExecDestroy p
cudaGraphExecEventRecordNodeSetEvent ppp
cudaGraphExecEventWaitNodeSetEvent ppp
cudaGraphExecGetFlags pp
cudaGraphExecGetId pp
cudaGraphExecHostNodeSetParams ppp
cudaGraphExecKernelNodeSetParams ppp
cudaGraphExecUpdate ppp cuGraphExecUpdate 12000
cudaGraphGetEdges ppppp cuGraphGetEdges 12030
cudaGraphGetId pp
cudaGraphGetNodes ppp
cudaGraphGetRootNodes ppp
cudaGraphHostNodeGetParams pp
cudaGraphHostNodeSetParams pp
cudaGraphInstantiate ppl cuGraphInstantiateWithFlags
cudaGraphInstantiateWithFlags ppl
cudaGraphInstantiateWithParams ppp
cudaGraphKernelNodeCopyAttributes pp
cudaGraphKernelNodeGetAttribute pip
cudaGraphKernelNodeGetParams pp
cudaGraphKernelNodeSetAttribute pip
cudaGraphKernelNodeSetParams pp
cudaGraphLaunch pp
cudaGraphMemAllocNodeGetParams pp
cudaGraphMemFreeNodeGetParams pp
cudaGraphMemsetNodeGetParams pp
cudaGraphMemsetNodeSetParams pp
cudaGraphNodeFindInClone ppp
cudaGraphNodeGetContainingGraph pp
cudaGraphNodeGetDependencies pppp cuGraphNodeGetDependencies 12030
cudaGraphNodeGetDependentNodes pppp cuGraphNodeGetDependentNodes 12030
cudaGraphNodeGetEnabled ppp
cudaGraphNodeGetLocalId pp
cudaGraphNodeGetToolsId pp
cudaGraphNodeGetType pp
cudaGraphNodeSetEnabled ppu
cudaGraphReleaseUserObject ppu
cudaGraphRemoveDependencies ppppz cuGraphRemoveDependencies 12030
cudaGraphRetainUserObject ppuu
cudaGraphUpload pp
cudaHostAlloc pzu cuMemHostAlloc
cudaHostGetDevicePointer ppu cuMemHostGetDevicePointer
cudaHostGetFlags pp cuMemHostGetFlags
cudaHostRegister pzu cuMemHostRegister
cudaHostUnregister p cuMemHostUnregister
cudaLaunchHostFunc_v2 pppu cuLaunchHostFunc 13010
cudaMalloc pz cuMemAlloc
cudaMallocAsync pzp cuMemAllocAsync
cudaMallocFromPoolAsync pzpp cuMemAllocFromPoolAsync
cudaMallocHost pz cuMemAllocHost
cudaMallocManaged pzu cuMemAllocManaged
cudaMemAdvise pzil cuMemAdvise 12020
cudaMemGetDefaultMemPool ppi
cudaMemGetInfo pp
cudaMemGetMemPool ppi
cudaMemPoolCreate pp
cudaMemPoolDestroy p
cudaMemPoolGetAccess ppp
cudaMemPoolGetAttribute pip
cudaMemPoolSetAccess ppz
cudaMemPoolSetAttribute pip
cudaMemPoolTrimTo pz
cudaMemPrefetchAsync pzlup cuMemPrefetchAsync 12020
cudaMemRangeGetAttribute pzipz
cudaMemRangeGetAttributes pppzpz
cudaMemSetMemPool pip
cudaProfilerStart -
cudaProfilerStop -
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
cudaUserObjectCreate pppuu
cudaUserObjectRelease pu
cudaUserObjectRetain pu
"""
_WORDS: Final = {
    "p": "void *",
    "z": "size_t",
    "i": "int",
    "u": "unsigned int",
    "l": "unsigned long long",
}


def signature(kinds: str) -> str:
    """The C arguments that letters stand for."""
    return ", ".join(_WORDS[kind] for kind in kinds) or "void"


_LETTERS: Final = {
    "size_t": "z",
    "int": "i",
    "unsigned int": "u",
    "unsigned PY_LONG_LONG": "l",
    # Two ints: passed in one register of 64 bits.
    "struct cudaMemLocation": "l",
}


def kinds_of(c_signature: str) -> str:
    """The letters of "cudaError_t (A, B *)"; S for a structure by value."""
    arguments = c_signature.partition("(")[2].rpartition(")")[0].strip()
    if arguments in ("", "void"):
        return ""
    return "".join(_letter(each.strip()) for each in arguments.split(","))


def _letter(text: str) -> str:
    if text.endswith("*"):
        return "p"
    found = _LETTERS.get(text)
    if found is not None:
        return found
    if text.startswith("enum ") or text.endswith("AttrID"):
        return "i"
    return "S" if text.startswith("struct ") or text.endswith("Handle_t") else "p"


def _row(words: list[str]) -> tuple[str, tuple[str, int, str]]:
    name, kinds, *driver = words
    of_driver = driver[0] if driver else "cu" + name.removeprefix("cuda")
    return name, (of_driver, int(driver[1]) if len(driver) > 1 else 0, kinds.strip("-"))


FORWARDED: Final = dict(_row(line.split()) for line in _ROWS.strip().splitlines())
"""By name: the driver's function, the version of its form (0: it has one), its letters."""
