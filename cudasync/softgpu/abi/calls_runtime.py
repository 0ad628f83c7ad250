"""Cellar. Functions of the runtime API: the driver's under other names, for the most part.

The runtime differs in three things: it initialises by itself, it works in the primary context of
the thread's device where no other is current, and it keeps each thread's last error. Its errors
have the driver's numbers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cudasync.softgpu.abi import registry
from cudasync.softgpu.abi.values import need, put_i32
from cudasync.softgpu.abi.versions import ANY_VERSION
from cudasync.softgpu.core.native_threads import PerThread
from cudasync.softgpu.core.results import SUCCESS, DriverFailure

if TYPE_CHECKING:
    from collections.abc import Callable

    from cudasync.softgpu.core.machine import Machine

    Call = Callable[..., int | None]

_INVALID_MEMCPY_DIRECTION: Final = 21
_DIRECTIONS: Final = range(5)

FORWARDED: Final = {
    "cudaDeviceGetStreamPriorityRange": ("cuCtxGetStreamPriorityRange", "int *, int *"),
    "cudaEventCreateWithFlags": ("cuEventCreate", "CUevent *, unsigned int"),
    "cudaEventDestroy": ("cuEventDestroy", "CUevent"),
    "cudaEventElapsedTime": ("cuEventElapsedTime", "float *, CUevent, CUevent"),
    "cudaEventQuery": ("cuEventQuery", "CUevent"),
    "cudaEventRecord": ("cuEventRecord", "CUevent, CUstream"),
    "cudaEventSynchronize": ("cuEventSynchronize", "CUevent"),
    "cudaFreeAsync": ("cuMemFreeAsync", "void *, CUstream"),
    "cudaHostAlloc": ("cuMemHostAlloc", "void **, size_t, unsigned int"),
    "cudaHostRegister": ("cuMemHostRegister", "void *, size_t, unsigned int"),
    "cudaHostUnregister": ("cuMemHostUnregister", "void *"),
    "cudaMalloc": ("cuMemAlloc", "void **, size_t"),
    "cudaMallocAsync": ("cuMemAllocAsync", "void **, size_t, CUstream"),
    "cudaMallocHost": ("cuMemAllocHost", "void **, size_t"),
    "cudaMallocManaged": ("cuMemAllocManaged", "void **, size_t, unsigned int"),
    "cudaMemGetInfo": ("cuMemGetInfo", "size_t *, size_t *"),
    "cudaStreamCreateWithFlags": ("cuStreamCreate", "CUstream *, unsigned int"),
    "cudaStreamCreateWithPriority": (
        "cuStreamCreateWithPriority",
        "CUstream *, unsigned int, int",
    ),
    "cudaStreamDestroy": ("cuStreamDestroy", "CUstream"),
    "cudaStreamQuery": ("cuStreamQuery", "CUstream"),
    "cudaStreamSynchronize": ("cuStreamSynchronize", "CUstream"),
    "cudaStreamWaitEvent": ("cuStreamWaitEvent", "CUstream, CUevent, unsigned int"),
}
"""What takes the arguments of a function of the driver: that function, and the C arguments."""


class _Thread:
    """What the runtime knows of a thread."""

    def __init__(self) -> None:
        self.device = 0
        self.error = SUCCESS


_thread: PerThread[_Thread] = PerThread(_Thread, {})
_entries: dict[str, registry.Entry] = {}


def entries() -> dict[str, registry.Entry]:
    """The functions that are here, by name."""
    return _entries


def _function(name: str, signature: str, *, in_context: bool = True) -> Callable[[Call], Call]:
    """Enter the decorated function: it finds the driver initialised, and a context current."""

    def enter(call: Call) -> Call:
        def run(machine: Machine, *arguments: int) -> int:
            machine.is_initialized = True
            try:
                if in_context and machine.current() is None:
                    _use(machine, _thread.own.device)
                code = call(machine, *arguments) or SUCCESS
            except DriverFailure as failure:
                _thread.own.error = failure.code
                raise
            if code:
                _thread.own.error = code
            return code

        _entries[name] = registry.Entry(name, ANY_VERSION, signature, run, True)
        return call

    return enter


def _use(machine: Machine, ordinal: int) -> None:
    """Make the primary context of a device current; it stays there to the end."""
    device = machine.device(ordinal)
    machine.set_current(machine.use_primary(device))
    _thread.own.device = ordinal


def _driver(name: str, version: int = ANY_VERSION) -> Call:
    entry = registry.find(name, version)
    assert entry is not None, name
    return entry.call


def _forwarded(name: str) -> Call:
    # Looked up when it is called: the driver's functions are entered by other modules.
    def call(machine: Machine, *arguments: int) -> int | None:
        return _driver(name)(machine, *arguments)

    return call


for _name, (_of_driver, _signature) in FORWARDED.items():
    _function(_name, _signature)(_forwarded(_of_driver))


# Devices


@_function("cudaGetDeviceCount", "int *", in_context=False)
def cuda_get_device_count(machine: Machine, count: int) -> None:
    put_i32(count, len(machine.devices))


@_function("cudaGetDevice", "int *", in_context=False)
def cuda_get_device(machine: Machine, device: int) -> None:
    current = machine.current()
    put_i32(device, _thread.own.device if current is None else current.device.ordinal)


@_function("cudaSetDevice", "int", in_context=False)
def cuda_set_device(machine: Machine, device: int) -> None:
    _use(machine, device)


@_function("cudaDeviceGetAttribute", "int *, int, int", in_context=False)
def cuda_device_get_attribute(machine: Machine, value: int, attribute: int, device: int) -> None:
    _driver("cuDeviceGetAttribute")(machine, value, attribute, device)


@_function("cudaDeviceSynchronize", "void")
def cuda_device_synchronize(machine: Machine) -> int | None:
    return _driver("cuCtxSynchronize", 2000)(machine)


@_function("cudaDeviceReset", "void")
def cuda_device_reset(machine: Machine) -> None:
    current = machine.current()
    assert current is not None
    machine.reset_primary(current.device)


@_function("cudaDeviceGetPCIBusId", "char *, int, int", in_context=False)
def cuda_device_get_pci_bus_id(machine: Machine, text: int, size: int, device: int) -> None:
    _driver("cuDeviceGetPCIBusId")(machine, text, size, device)


@_function("cudaDeviceGetByPCIBusId", "int *, char const *", in_context=False)
def cuda_device_get_by_pci_bus_id(machine: Machine, device: int, text: int) -> None:
    _driver("cuDeviceGetByPCIBusId")(machine, device, text)


# Errors


def _last_error(name: str, *, is_kept: bool) -> None:
    def run(_machine: Machine) -> int:
        code = _thread.own.error
        if not is_kept:
            _thread.own.error = SUCCESS
        return code

    _entries[name] = registry.Entry(name, ANY_VERSION, "void", run, True)


_last_error("cudaGetLastError", is_kept=False)
_last_error("cudaPeekAtLastError", is_kept=True)


# Memory


@_function("cudaFree", "void *")
def cuda_free(machine: Machine, address: int) -> int | None:
    # Of nothing, it is the customary way to have the runtime initialise.
    return _driver("cuMemFree")(machine, address) if address else None


@_function("cudaFreeHost", "void *")
def cuda_free_host(machine: Machine, address: int) -> int | None:
    return _driver("cuMemFreeHost")(machine, address) if address else None


@_function("cudaMemcpy", "void *, void const *, size_t, int")
def cuda_memcpy(
    machine: Machine, target: int, source: int, size: int, direction: int
) -> int | None:
    _check(direction)
    return _driver("cuMemcpy")(machine, target, source, size)


@_function("cudaMemcpyAsync", "void *, void const *, size_t, int, CUstream")
def cuda_memcpy_async(
    machine: Machine, target: int, source: int, size: int, direction: int, stream: int
) -> int | None:
    _check(direction)
    return _driver("cuMemcpyAsync")(machine, target, source, size, stream)


def _check(direction: int) -> None:
    # What is copied whence, the addresses say.
    if direction not in _DIRECTIONS:
        raise DriverFailure(_INVALID_MEMCPY_DIRECTION, f"there is no direction {direction}")


@_function("cudaMemset", "void *, int, size_t")
def cuda_memset(machine: Machine, address: int, value: int, size: int) -> int | None:
    return _driver("cuMemsetD8")(machine, address, value & 0xFF, size)


@_function("cudaMemsetAsync", "void *, int, size_t, CUstream")
def cuda_memset_async(
    machine: Machine, address: int, value: int, size: int, stream: int
) -> int | None:
    return _driver("cuMemsetD8Async")(machine, address, value & 0xFF, size, stream)


# Streams and events


@_function("cudaStreamCreate", "CUstream *")
def cuda_stream_create(machine: Machine, stream: int) -> int | None:
    need(stream)
    return _driver("cuStreamCreate")(machine, stream, 0)


@_function("cudaEventCreate", "CUevent *")
def cuda_event_create(machine: Machine, event: int) -> int | None:
    need(event)
    return _driver("cuEventCreate")(machine, event, 0)


@_function("cudaLaunchHostFunc", "CUstream, void *, void *")
def cuda_launch_host_func(machine: Machine, stream: int, function: int, data: int) -> int | None:
    return _driver("cuLaunchHostFunc", 10000)(machine, stream, function, data)
