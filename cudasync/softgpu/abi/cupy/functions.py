"""Cellar, abi. CuPy's functions that make several calls, or take arguments that are not numbers."""

from __future__ import annotations

import ctypes
import os
from typing import TYPE_CHECKING, Any, Final

from cudasync.softgpu.abi.marshalling.memory_structures import PoolProperties
from cudasync.softgpu.abi.runtime.arrays.array_memory import created_array
from cudasync.softgpu.abi.runtime.device_properties import described, luid
from cudasync.softgpu.abi.runtime.unified_addressing import PointerAttributes
from cudasync.softgpu.core.driver_types.result_codes import DriverFailure
from cudasync.softgpu.core.memory.interprocess_handles import HANDLE_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import ModuleType

    from cudasync.softgpu.abi.cupy.calling import Runtime
    from cudasync.softgpu.core.machine import Machine

_PEER_ACCESS_ALREADY_ENABLED: Final = 704
_ON_DEVICE: Final = 1
_ON_HOST: Final = 2
_CAPTURE_INVALIDATED: Final = 2
# cudaMemPoolAttr: attributes from here on are 64 bits wide.
_FIRST_WIDE_ATTRIBUTE: Final = 4
_OBJECT_HEAD_BYTES: Final = 16
_NO_FLAGS: Final = 0
_LAZY_PEER_ACCESS: Final = 1


class Functions:
    """The functions by name, for one copy of CuPy's runtime module."""

    def __init__(self, runtime: Runtime, module: ModuleType) -> None:
        self._runtime = runtime
        self._module = module

    def named(self) -> Iterator[tuple[str, str, Callable[..., Any]]]:
        """The name, the letters and the function of each."""
        for name, letters in _LETTERS.items():
            yield name, letters, getattr(self, name)

    # Devices

    def check_status(self, status: int) -> None:
        if status:
            self._runtime.result("cudaGetLastError")
            raise self._runtime.failure(status, self._runtime.table.details.text(status))

    def _ensure_context(self) -> None:
        self._runtime.call("cudaFree", 0)

    def driverGetVersion(self) -> int:
        version = ctypes.c_int()
        self._runtime.call("cudaDriverGetVersion", ctypes.addressof(version))
        return version.value

    def deviceEnablePeerAccess(self, peerDevice: int) -> None:
        self._runtime.call("cudaDeviceEnablePeerAccess", peerDevice, _NO_FLAGS)

    def _deviceEnsurePeerAccess(self, peerDevice: int) -> None:
        try:
            self.deviceEnablePeerAccess(peerDevice)
        except self._runtime.error as problem:
            if getattr(problem, "status", 0) != _PEER_ACCESS_ALREADY_ENABLED:
                raise
            self._runtime.result("cudaGetLastError")

    def deviceGetByPCIBusId(self, pci_bus_id: str) -> int:
        device, text = ctypes.c_int(), ctypes.create_string_buffer(pci_bus_id.encode("ascii"))
        at = ctypes.addressof(device), ctypes.addressof(text)
        self._runtime.call("cudaDeviceGetByPCIBusId", *at)
        return device.value

    def deviceGetPCIBusId(self, device: int) -> str:
        text = ctypes.create_string_buffer(13)
        self._runtime.call("cudaDeviceGetPCIBusId", ctypes.addressof(text), 13, device)
        return text.value.decode("ascii")

    def getDeviceProperties(self, device: int) -> dict[str, Any]:
        try:
            found = self._runtime.machine.device(device)
        except DriverFailure as failure:
            raise self._runtime.failure(failure.code, failure.detail) from None
        said = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in described(found).items()
        }
        said["name"], said["uuid"] = found.name.encode(), bytes(found.uuid)
        said["luid"] = luid(found)
        said["kernelExecTimeoutEnabled"] = said["computeMode"] = 0
        return said

    # Memory and events of other processes

    def ipcGetMemHandle(self, devPtr: int) -> bytes:
        handle = ctypes.create_string_buffer(HANDLE_BYTES)
        self._runtime.call("cudaIpcGetMemHandle", ctypes.addressof(handle), devPtr)
        return handle.raw

    def ipcGetEventHandle(self, event: int) -> bytes:
        handle = ctypes.create_string_buffer(HANDLE_BYTES)
        self._runtime.call("cudaIpcGetEventHandle", ctypes.addressof(handle), event)
        return handle.raw

    def ipcOpenMemHandle(self, handle: bytes, flags: int = _LAZY_PEER_ACCESS) -> int:
        del flags  # There is one, and it changes nothing.
        return self._opened(lambda machine: machine.interprocess.open(handle).start)

    def ipcOpenEventHandle(self, handle: bytes) -> int:
        return self._opened(lambda machine: machine.streams.open_event(handle).handle)

    def _opened(self, open_: Callable[[Machine], int]) -> int:
        self._ensure_context()
        try:
            return open_(self._runtime.machine)
        except DriverFailure as failure:
            raise self._runtime.failure(failure.code, failure.detail) from None

    # Memory

    def malloc3DArray(
        self, descPtr: int, width: int, height: int, depth: int, flags: int = 0
    ) -> int:
        extent = width, height, depth
        return self._opened(lambda machine: created_array(machine, descPtr, extent, flags))

    def memGetInfo(self) -> tuple[int, int]:
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self._runtime.call("cudaMemGetInfo", ctypes.addressof(free), ctypes.addressof(total))
        return free.value, total.value

    def _place(self, device: int) -> int:
        """A cudaMemLocation as the 64 bits of a register."""
        if device == -1 and self._module.runtimeGetVersion() < 13000:
            return _ON_HOST
        return _ON_DEVICE | (device & 0xFFFFFFFF) << 32

    def memPrefetchAsync(self, devPtr: int, count: int, dstDevice: int, stream: int) -> None:
        place = self._place(dstDevice)
        self._runtime.call("cudaMemPrefetchAsync", devPtr, count, place, _NO_FLAGS, stream)

    def memAdvise(self, devPtr: int, count: int, advice: int, device: int) -> None:
        self._runtime.call("cudaMemAdvise", devPtr, count, advice, self._place(device))

    def _attributes(self, ptr: int) -> PointerAttributes:
        found = PointerAttributes()
        self._runtime.call("cudaPointerGetAttributes", ctypes.addressof(found), ptr)
        return found

    def pointerGetAttributes(self, ptr: int) -> Any:
        found = self._attributes(ptr)
        pointers = found.device_pointer or 0, found.host_pointer or 0
        return self._module.PointerAttributes(found.device, *pointers, found.type)

    def pointerGetMemoryType(self, ptr: int) -> int:
        return int(self._attributes(ptr).type)

    # Pools

    def memPoolCreate(self, props: Any) -> int:
        # Python cannot read its four ints: they follow the head of the object.
        words = (ctypes.c_int * 4).from_address(id(props) + _OBJECT_HEAD_BYTES)
        properties = PoolProperties()
        properties.allocation_type, properties.handle_types = words[0], words[1]
        properties.location.kind, properties.location.number = words[2], words[3]
        pool = ctypes.c_int64()
        at = ctypes.addressof(pool), ctypes.addressof(properties)
        self._runtime.call("cudaMemPoolCreate", *at)
        return pool.value

    def memPoolGetAttribute(self, pool: int, attr: int) -> int:
        room = ctypes.c_uint64() if attr >= _FIRST_WIDE_ATTRIBUTE else ctypes.c_int()
        self._runtime.call("cudaMemPoolGetAttribute", pool, attr, ctypes.addressof(room))
        return room.value

    def memPoolSetAttribute(self, pool: int, attr: int, value: int) -> None:
        place = ctypes.c_uint64 if attr >= _FIRST_WIDE_ATTRIBUTE else ctypes.c_int
        room = place(int(value))
        self._runtime.call("cudaMemPoolSetAttribute", pool, attr, ctypes.addressof(room))

    # Streams

    def streamIsCapturing(self, stream: int) -> bool:
        status = ctypes.c_int()
        self._runtime.call("cudaStreamIsCapturing", stream, ctypes.addressof(status))
        if status.value == _CAPTURE_INVALIDATED:
            raise RuntimeError(
                "the stream was capturing, but an error has invalidated the capture sequence"
            )
        return bool(status.value)

    def streamAddCallback(self, stream: int, callback: Any, arg: int, flags: int = 0) -> None:
        self._enqueue("cudaStreamAddCallback", stream, _stream_callback, (callback, arg), flags)

    def launchHostFunc(self, stream: int, callback: Any, arg: int) -> None:
        self._enqueue("cudaLaunchHostFunc", stream, _host_function, (callback, arg))

    def _launchHostFuncUnmanaged(self, stream: int, func_arg: tuple[Any, Any]) -> None:
        # The caller keeps the pair: a graph may call the function any number of times.
        address = ctypes.cast(_kept_host_function, ctypes.c_void_p).value
        assert address is not None
        self._runtime.call("cudaLaunchHostFunc", stream, address, id(func_arg))

    def _enqueue(
        self, name: str, stream: int, entry: Any, pair: tuple[Any, Any], *more: int
    ) -> None:
        """Have C call the pair's function once, and release the pair then."""
        address = ctypes.cast(entry, ctypes.c_void_p).value
        assert address is not None
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(pair))
        try:
            self._runtime.call(name, stream, address, id(pair), *more)
        except BaseException:
            ctypes.pythonapi.Py_DecRef(ctypes.py_object(pair))
            raise

    # Textures and graphs

    def createTextureObject(self, ResDescPtr: int, TexDescPtr: int) -> int:
        texture = ctypes.c_uint64()
        at = ctypes.addressof(texture)
        self._runtime.call("cudaCreateTextureObject", at, ResDescPtr, TexDescPtr, 0)
        return texture.value

    def graphInstantiate(self, graph: int) -> int:
        executable = ctypes.c_int64()
        at = ctypes.addressof(executable)
        self._runtime.call("cudaGraphInstantiate", at, graph, _NO_FLAGS)
        return executable.value

    def graphDebugDotPrint(self, graph: int, path: str, flags: int) -> None:
        text = ctypes.create_string_buffer(os.fsencode(path))
        self._runtime.call("cudaGraphDebugDotPrint", graph, ctypes.addressof(text), flags)


_LETTERS: Final = {
    "check_status": "O(i)",
    "_ensure_context": "O()",
    "driverGetVersion": "i()",
    "deviceEnablePeerAccess": "O(i)",
    "_deviceEnsurePeerAccess": "O(i)",
    "deviceGetByPCIBusId": "i(O)",
    "deviceGetPCIBusId": "O(i)",
    "getDeviceProperties": "O(i)",
    "ipcGetMemHandle": "O(l)",
    "ipcGetEventHandle": "O(l)",
    "ipcOpenMemHandle": "l(Ou)",
    "ipcOpenEventHandle": "l(O)",
    "malloc3DArray": "l(lzzzu+)",
    "memGetInfo": "O()",
    "memPrefetchAsync": "O(lzil)",
    "memAdvise": "O(lzii)",
    "pointerGetAttributes": "O(l)",
    "pointerGetMemoryType": "i(l)",
    "memPoolCreate": "l(O)",
    "memPoolGetAttribute": "O(li)",
    "memPoolSetAttribute": "O(liO)",
    "streamIsCapturing": "i(l)",
    "streamAddCallback": "O(lOlu+)",
    "launchHostFunc": "O(lOl)",
    "_launchHostFuncUnmanaged": "O(lO)",
    "createTextureObject": "z(ll)",
    "graphInstantiate": "l(l)",
    "graphDebugDotPrint": "O(lOu)",
}


def _pair_at(address: int) -> tuple[Any, Any]:
    pair: tuple[Any, Any] = ctypes.cast(address, ctypes.py_object).value
    return pair


def _call_back(stream: int | None, status: int, data: int) -> None:
    pair = _pair_at(data)
    ctypes.pythonapi.Py_DecRef(ctypes.py_object(pair))
    pair[0](stream or 0, status, pair[1])


def _call_once(data: int) -> None:
    pair = _pair_at(data)
    ctypes.pythonapi.Py_DecRef(ctypes.py_object(pair))
    pair[0](pair[1])


def _call_kept(data: int) -> None:
    function, argument = _pair_at(data)
    function(argument)


# The C functions that a stream calls.
_stream_callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)(
    _call_back
)
_host_function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(_call_once)
_kept_host_function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(_call_kept)
