"""Cellar, abi. CuPy's functions that each call one function of the runtime API.

A row has CuPy's name with its parameters and their defaults; its letters (`signatures.py`); the
function of the runtime API; and the form of the answer. The form is `first` or `last` (with a
letter) for a C parameter that points to the answer, `code` for the result code itself, or empty.
"""

from __future__ import annotations

import ctypes
import re
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cudasync.softgpu.abi.cupy.calling import Runtime

_ROWS: Final = """
getDevice() i() cudaGetDevice first i
getDeviceCount() i() cudaGetDeviceCount first i
deviceGetAttribute(attrib,device) i(ii) cudaDeviceGetAttribute first i
setDevice(device) O(i) cudaSetDevice
deviceSynchronize() O() cudaDeviceSynchronize
deviceCanAccessPeer(device,peerDevice) i(ii) cudaDeviceCanAccessPeer first i
deviceDisablePeerAccess(peerDevice) O(i) cudaDeviceDisablePeerAccess
deviceGetLimit(limit) z(i) cudaDeviceGetLimit first z
deviceSetLimit(limit,value) O(iz) cudaDeviceSetLimit
malloc(size) l(z) cudaMalloc first l
mallocManaged(size,flags=1) l(zu+) cudaMallocManaged first l
mallocArray(descPtr,width,height,flags=0) l(lzzu+) cudaMallocArray first l
mallocAsync(size,stream) l(zl) cudaMallocAsync first l
mallocFromPoolAsync(size,pool,stream) l(zll) cudaMallocFromPoolAsync first l
hostAlloc(size,flags) l(zu) cudaHostAlloc first l
hostRegister(ptr,size,flags) O(lzu) cudaHostRegister
hostUnregister(ptr) O(l) cudaHostUnregister
free(ptr) O(l) cudaFree
freeHost(ptr) O(l) cudaFreeHost
freeArray(ptr) O(l) cudaFreeArray
freeAsync(ptr,stream) O(ll) cudaFreeAsync
memcpy(dst,src,size,kind) O(llzi) cudaMemcpy
memcpyAsync(dst,src,size,kind,stream) O(llzil) cudaMemcpyAsync
memcpyPeer(dst,dstDevice,src,srcDevice,size) O(liliz) cudaMemcpyPeer
memcpyPeerAsync(dst,dstDevice,src,srcDevice,size,stream) O(lilizl) cudaMemcpyPeerAsync
memcpy2D(dst,dpitch,src,spitch,width,height,kind) O(lzlzzzi) cudaMemcpy2D
memcpy2DAsync(dst,dpitch,src,spitch,width,height,kind,stream) O(lzlzzzil) cudaMemcpy2DAsync
memcpy2DFromArray(dst,dpitch,src,wOffset,hOffset,width,height,kind) O(lzlzzzzi) \
cudaMemcpy2DFromArray
memcpy2DFromArrayAsync(dst,dpitch,src,wOffset,hOffset,width,height,kind,stream) O(lzlzzzzil) \
cudaMemcpy2DFromArrayAsync
memcpy2DToArray(dst,wOffset,hOffset,src,spitch,width,height,kind) O(lzzlzzzi) cudaMemcpy2DToArray
memcpy2DToArrayAsync(dst,wOffset,hOffset,src,spitch,width,height,kind,stream) O(lzzlzzzil) \
cudaMemcpy2DToArrayAsync
memcpy3D(Memcpy3DParmsPtr) O(l) cudaMemcpy3D
memcpy3DAsync(Memcpy3DParmsPtr,stream) O(ll) cudaMemcpy3DAsync
memset(ptr,value,size) O(liz) cudaMemset
memsetAsync(ptr,value,size,stream) O(lizl) cudaMemsetAsync
deviceGetDefaultMemPool(device) l(i) cudaDeviceGetDefaultMemPool first l
deviceGetMemPool(device) l(i) cudaDeviceGetMemPool first l
deviceSetMemPool(device,pool) O(il) cudaDeviceSetMemPool
memPoolDestroy(pool) O(l) cudaMemPoolDestroy
memPoolTrimTo(pool,size) O(lz) cudaMemPoolTrimTo
streamCreate() l() cudaStreamCreate first l
streamCreateWithFlags(flags) l(u) cudaStreamCreateWithFlags first l
streamCreateWithPriority(flags,priority) l(ui) cudaStreamCreateWithPriority first l
streamGetFlags(stream) u(l) cudaStreamGetFlags last u
streamGetPriority(stream) i(l) cudaStreamGetPriority last i
streamDestroy(stream) O(l) cudaStreamDestroy
streamSynchronize(stream) O(l) cudaStreamSynchronize
streamQuery(stream) O(l) cudaStreamQuery code
streamWaitEvent(stream,event,flags=0) O(llu+) cudaStreamWaitEvent
streamBeginCapture(stream,mode=2) O(li+) cudaStreamBeginCapture
streamEndCapture(stream) l(l) cudaStreamEndCapture last l
eventCreate() l() cudaEventCreate first l
eventCreateWithFlags(flags) l(u) cudaEventCreateWithFlags first l
eventDestroy(event) O(l) cudaEventDestroy
eventElapsedTime(start,end) f(ll) cudaEventElapsedTime first f
eventQuery(event) O(l) cudaEventQuery code
eventRecord(event,stream) O(ll) cudaEventRecord
eventSynchronize(event) O(l) cudaEventSynchronize
destroyTextureObject(texObject) O(z) cudaDestroyTextureObject
createSurfaceObject(ResDescPtr) z(l) cudaCreateSurfaceObject first z
destroySurfaceObject(surfObject) O(z) cudaDestroySurfaceObject
getChannelDesc(array) v(l) cudaGetChannelDesc
getTextureObjectResourceDesc(texobj) v(z) cudaGetTextureObjectResourceDesc
getTextureObjectTextureDesc(texobj) v(z) cudaGetTextureObjectTextureDesc
ipcCloseMemHandle(devPtr) O(l) cudaIpcCloseMemHandle
graphDestroy(graph) O(l) cudaGraphDestroy
graphExecDestroy(graphExec) O(l) cudaGraphExecDestroy
graphLaunch(graphExec,stream) O(ll) cudaGraphLaunch
graphUpload(graphExec,stream) O(ll) cudaGraphUpload
profilerStart() O() cudaProfilerStart
profilerStop() O() cudaProfilerStop
"""
_PLACES: Final[dict[str, Any]] = {
    "i": ctypes.c_int,
    "u": ctypes.c_uint,
    "l": ctypes.c_int64,
    "z": ctypes.c_uint64,
    "f": ctypes.c_float,
}


def forwarded(runtime: Runtime) -> Iterator[tuple[str, str, Callable[..., Any]]]:
    """The name, the letters and the function of each row."""
    for row in _ROWS.replace("\\\n", "").strip().splitlines():
        head, letters, of_runtime, *answer = row.split()
        match = re.fullmatch(r"(\w+)\((.*)\)", head)
        assert match is not None, row
        name, parameters = match[1], match[2]
        yield name, letters, _function(runtime, name, parameters, of_runtime, answer)


def _function(
    runtime: Runtime, name: str, parameters: str, of_runtime: str, answer: list[str]
) -> Callable[..., Any]:
    how, letter = answer[0] if answer else "", answer[-1] if answer else ""
    call, result = runtime.call, runtime.result
    if how == "code":

        def ask(*arguments: int) -> int:
            return result(of_runtime, *arguments)

        return _named(ask, name, parameters)
    if not how:
        if name.startswith("get"):
            # The address for the structure comes first.
            return lambda target, *arguments: call(of_runtime, target, *arguments)

        def do(*arguments: int) -> None:
            call(of_runtime, *arguments)

        return _named(do, name, parameters)
    place, is_first = _PLACES[letter], how == "first"

    def fetch(*arguments: int) -> Any:
        room = place()
        at = ctypes.addressof(room)
        if is_first:
            call(of_runtime, at, *arguments)
        else:
            call(of_runtime, *arguments, at)
        return room.value

    return _named(fetch, name, parameters)


def _named(call: Callable[..., Any], name: str, parameters: str) -> Callable[..., Any]:
    """The function under its name, with named parameters and defaults."""
    names = ", ".join(each.partition("=")[0] for each in parameters.split(",") if each)
    scope: dict[str, Any] = {"call": call}
    exec(f"def {name}({parameters}):\n    return call({names})\n", scope)
    made: Callable[..., Any] = scope[name]
    return made
