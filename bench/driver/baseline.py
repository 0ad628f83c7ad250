"""The calls of bench_driver on raw `cuda.bindings`, under the same names.

Handles and argument tuples are made once, as in a careful program. Results are not checked, so the
baseline is the strictest possible: the library's overhead includes its check.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

import numpy as np
from cuda.bindings import driver

from bench.driver.rig import COPY_BYTES, TYPES

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.driver.rig import Rig

NAME = "cuda.bindings"

_C_TYPES = {
    "u64": ctypes.c_void_p,
    "u32": ctypes.c_uint32,
    "s32": ctypes.c_int32,
    "f32": ctypes.c_float,
}


def stream_query(rig: Rig) -> Callable[[], object]:
    handle, call = stream(rig), driver.cuStreamQuery
    return lambda: call(handle)


def event_query(rig: Rig) -> Callable[[], object]:
    handle, call = event(rig), driver.cuEventQuery
    return lambda: call(handle)


def event_record(rig: Rig) -> Callable[[], object]:
    on, what, call = stream(rig), event(rig), driver.cuEventRecord
    return lambda: call(what, on)


def stream_wait_event(rig: Rig) -> Callable[[], object]:
    on, what, call = stream(rig), event(rig), driver.cuStreamWaitEvent
    return lambda: call(on, what, 0)


def memcpy_async(rig: Rig) -> Callable[[], object]:
    on, call = stream(rig), driver.cuMemcpyHtoDAsync
    target, source = rig.target.ptr, rig.source.ctypes.data
    return lambda: call(target, source, COPY_BYTES, on)


def launch_0(rig: Rig) -> Callable[[], object]:
    on, kernel, call = stream(rig), function(rig, "launch_0"), driver.cuLaunchKernel
    return lambda: call(kernel, 1, 1, 1, 1, 1, 1, 0, on, 0, 0)


def launch_3(rig: Rig) -> Callable[[], object]:
    return launch(rig, "launch_3")


def launch_8(rig: Rig) -> Callable[[], object]:
    return launch(rig, "launch_8")


def launch(rig: Rig, name: str) -> Callable[[], object]:
    """A launch from values and their C types, which cuda.bindings packs at every launch."""
    on, kernel, call = stream(rig), function(rig, name), driver.cuLaunchKernel
    values = tuple(plain(value) for value in rig.arguments(name))
    types = tuple(_C_TYPES[kind] for kind in TYPES[name])
    arguments = (values, types)
    return lambda: call(kernel, 1, 1, 1, 1, 1, 1, 0, on, arguments, 0)


def packed(rig: Rig, name: str) -> Callable[[], object]:
    """The same launch from pointers packed once: the lower bound of any launch."""
    on, kernel, call = stream(rig), function(rig, name), driver.cuLaunchKernel
    types = [_C_TYPES[kind] for kind in TYPES[name]]
    values = [kind(plain(value)) for kind, value in zip(types, rig.arguments(name), strict=True)]
    pointers = np.array([ctypes.addressof(value) for value in values], dtype=np.uint64)
    address = pointers.ctypes.data

    def action() -> object:
        return call(kernel, 1, 1, 1, 1, 1, 1, 0, on, address, 0)

    action.keeps = (values, pointers)
    return action


def plain(value: object) -> object:
    """A kernel argument as a Python number; a buffer as its address."""
    return value.item() if isinstance(value, np.generic) else value.ptr


def stream(rig: Rig) -> driver.CUstream:
    return driver.CUstream(int(rig.stream.handle))


def event(rig: Rig) -> driver.CUevent:
    return driver.CUevent(int(rig.event.handle))


def function(rig: Rig, name: str) -> driver.CUfunction:
    """The kernel's handle."""
    return checked(driver.cuModuleGetFunction(rig.module.get(), name.encode()))


def own_counter(rig: Rig) -> int:
    """The device address of the counter that `launch_0` adds to."""
    address, _ = checked(driver.cuModuleGetGlobal(rig.module.get(), b"own_counter"))
    return int(address)


def checked(result: tuple) -> object:
    """The result of a call; RuntimeError if the driver refused it."""
    code, *rest = result
    if code != driver.CUresult.CUDA_SUCCESS:
        raise RuntimeError(f"{code!r}")
    return rest[0] if len(rest) == 1 else tuple(rest)
