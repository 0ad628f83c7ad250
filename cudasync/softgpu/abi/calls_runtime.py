"""Cellar. Functions of the runtime API: the driver's under other names, for the most part.

The runtime differs in three things: it initialises by itself, it works in the primary context of
the thread's device where no other is current, and it keeps each thread's last error. Its errors
have the driver's numbers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cudasync.softgpu.abi import registry
from cudasync.softgpu.abi.other_libraries.runtime_forwards import FORWARDED, signature
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


KINDS: Final[dict[str, str]] = {}
"""The letters of a function's arguments, where they are held to the installed bindings."""


def of_kinds(name: str, kinds: str, *, in_context: bool = True) -> Callable[[Call], Call]:
    """Enter the decorated function, with arguments by letters: see `runtime_forwards`."""
    KINDS[name] = kinds
    return runtime_function(name, signature(kinds), in_context=in_context)


def runtime_function(
    name: str, signature: str, *, in_context: bool = True
) -> Callable[[Call], Call]:
    """Enter the decorated function: it finds the driver initialised, and a context current."""

    def enter(call: Call) -> Call:
        def run(machine: Machine, *arguments: int) -> int:
            machine.is_initialized = True
            try:
                if in_context and machine.current() is None:
                    use_device(machine, _thread.own.device)
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


def use_device(machine: Machine, ordinal: int) -> None:
    """Make the primary context of a device current; it stays there to the end."""
    device = machine.device(ordinal)
    machine.set_current(machine.use_primary(device))
    _thread.own.device = ordinal


def driver_function(name: str, version: int = ANY_VERSION) -> Call:
    """A function of the driver, by its name and the version of its form."""
    entry = registry.find(name, version)
    assert entry is not None, name
    return entry.call


def _forwarded(name: str, version: int) -> Call:
    # Looked up when it is called: the driver's functions are entered by other modules.
    def call(machine: Machine, *arguments: int) -> int | None:
        return driver_function(name, version)(machine, *arguments)

    return call


for _name, (_of_driver, _version, _kinds) in FORWARDED.items():
    of_kinds(_name, _kinds)(_forwarded(_of_driver, _version))


# Devices


@runtime_function("cudaGetDeviceCount", "int *", in_context=False)
def cuda_get_device_count(machine: Machine, count: int) -> None:
    put_i32(count, len(machine.devices))


@runtime_function("cudaGetDevice", "int *", in_context=False)
def cuda_get_device(machine: Machine, device: int) -> None:
    current = machine.current()
    put_i32(device, _thread.own.device if current is None else current.device.ordinal)


@runtime_function("cudaSetDevice", "int", in_context=False)
def cuda_set_device(machine: Machine, device: int) -> None:
    use_device(machine, device)


@runtime_function("cudaDeviceGetAttribute", "int *, int, int", in_context=False)
def cuda_device_get_attribute(machine: Machine, value: int, attribute: int, device: int) -> None:
    driver_function("cuDeviceGetAttribute")(machine, value, attribute, device)


@runtime_function("cudaDeviceSynchronize", "void")
def cuda_device_synchronize(machine: Machine) -> int | None:
    return driver_function("cuCtxSynchronize", 2000)(machine)


@runtime_function("cudaDeviceReset", "void")
def cuda_device_reset(machine: Machine) -> None:
    current = machine.current()
    assert current is not None
    machine.reset_primary(current.device)


@runtime_function("cudaDeviceGetPCIBusId", "char *, int, int", in_context=False)
def cuda_device_get_pci_bus_id(machine: Machine, text: int, size: int, device: int) -> None:
    driver_function("cuDeviceGetPCIBusId")(machine, text, size, device)


@runtime_function("cudaDeviceGetByPCIBusId", "int *, char const *", in_context=False)
def cuda_device_get_by_pci_bus_id(machine: Machine, device: int, text: int) -> None:
    driver_function("cuDeviceGetByPCIBusId")(machine, device, text)


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


@runtime_function("cudaFree", "void *")
def cuda_free(machine: Machine, address: int) -> int | None:
    # Of nothing, it is the customary way to have the runtime initialise.
    return driver_function("cuMemFree")(machine, address) if address else None


@runtime_function("cudaFreeHost", "void *")
def cuda_free_host(machine: Machine, address: int) -> int | None:
    return driver_function("cuMemFreeHost")(machine, address) if address else None


@runtime_function("cudaMemcpy", "void *, void const *, size_t, int")
def cuda_memcpy(
    machine: Machine, target: int, source: int, size: int, direction: int
) -> int | None:
    _check(direction)
    return driver_function("cuMemcpy")(machine, target, source, size)


@runtime_function("cudaMemcpyAsync", "void *, void const *, size_t, int, CUstream")
def cuda_memcpy_async(
    machine: Machine, target: int, source: int, size: int, direction: int, stream: int
) -> int | None:
    _check(direction)
    return driver_function("cuMemcpyAsync")(machine, target, source, size, stream)


def _check(direction: int) -> None:
    # What is copied whence, the addresses say.
    if direction not in _DIRECTIONS:
        raise DriverFailure(_INVALID_MEMCPY_DIRECTION, f"there is no direction {direction}")


@runtime_function("cudaMemset", "void *, int, size_t")
def cuda_memset(machine: Machine, address: int, value: int, size: int) -> int | None:
    return driver_function("cuMemsetD8")(machine, address, value & 0xFF, size)


@runtime_function("cudaMemsetAsync", "void *, int, size_t, CUstream")
def cuda_memset_async(
    machine: Machine, address: int, value: int, size: int, stream: int
) -> int | None:
    return driver_function("cuMemsetD8Async")(machine, address, value & 0xFF, size, stream)


# Streams and events


@runtime_function("cudaStreamCreate", "CUstream *")
def cuda_stream_create(machine: Machine, stream: int) -> int | None:
    need(stream)
    return driver_function("cuStreamCreate")(machine, stream, 0)


@runtime_function("cudaEventCreate", "CUevent *")
def cuda_event_create(machine: Machine, event: int) -> int | None:
    need(event)
    return driver_function("cuEventCreate")(machine, event, 0)


@runtime_function("cudaLaunchHostFunc", "CUstream, void *, void *")
def cuda_launch_host_func(machine: Machine, stream: int, function: int, data: int) -> int | None:
    return driver_function("cuLaunchHostFunc", 10000)(machine, stream, function, data)
