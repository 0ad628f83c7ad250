"""The rig of the figures: a device, a stream, three kernels, their stamps, and samples of calls."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from cuda.bindings import driver

import cudasync as cs
from bench.driver.baseline import checked
from bench.harness.goals import spread

# A launch queue of a GPU has at least a thousand places; a full one would make the host wait.
BURST = 64

# `empty` does nothing. `spin` lasts for a number of nanoseconds, and notes when it began and ended.
# `touch` takes the parameters of a usual kernel.
PTX = """
.version 6.4
.target sm_75
.address_size 64
.visible .entry empty() { ret; }
.visible .entry touch(.param .u64 word, .param .u32 count, .param .f32 factor)
{
    .reg .u32 %r_count;
    .reg .u64 %rd_word;
    ld.param.u64 %rd_word, [word];
    ld.param.u32 %r_count, [count];
    cvta.to.global.u64 %rd_word, %rd_word;
    st.global.u32 [%rd_word], %r_count;
    ret;
}
.visible .entry spin(.param .u64 stamps, .param .u64 length_ns)
{
    .reg .u64 %rd_stamps, %rd_length, %rd_begin, %rd_now, %rd_passed;
    .reg .pred %p_goes_on;
    ld.param.u64 %rd_stamps, [stamps];
    ld.param.u64 %rd_length, [length_ns];
    cvta.to.global.u64 %rd_stamps, %rd_stamps;
    mov.u64 %rd_begin, %globaltimer;
AGAIN:
    mov.u64 %rd_now, %globaltimer;
    sub.u64 %rd_passed, %rd_now, %rd_begin;
    setp.lt.u64 %p_goes_on, %rd_passed, %rd_length;
    @%p_goes_on bra AGAIN;
    st.global.u64 [%rd_stamps], %rd_begin;
    st.global.u64 [%rd_stamps+8], %rd_now;
    ret;
}
"""


@dataclass
class Found:
    """The figures so far, and the calls that were refused."""

    figures: list[dict[str, Any]] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)

    def add(self, name: str, unit: str, values: Iterable[float]) -> None:
        taken = list(values)
        self.figures.append({"id": name, "unit": unit, "samples": len(taken)} | spread(taken))

    def try_to(self, name: str, measure: Callable[[], None]) -> None:
        """Measure, and keep the error of a driver that does not."""
        try:
            measure()
        except RuntimeError as error:
            self.failed[name] = str(error)


class Rig:
    """A device, a stream, the kernels, and words for the stamps of many kernels."""

    def __init__(self, closing: ExitStack, *, is_small: bool) -> None:
        self.is_small = is_small
        self.closing = closing
        self.device = cs.Device(0)
        self.device.use()
        # Fewer samples, and kernels a hundred times as short, where nothing is measured.
        self.samples = 2 if is_small else 200
        self.scale = 0.01 if is_small else 1.0
        self.module = checked(driver.cuModuleLoadData(PTX.encode() + b"\0"))
        closing.callback(driver.cuModuleUnload, self.module)
        self.empty, self.touch, self.spinning = (
            checked(driver.cuModuleGetFunction(self.module, name))
            for name in (b"empty", b"touch", b"spin")
        )
        self.stream = self.new_stream()
        self.timed = self.new_event(timed=True), self.new_event(timed=True)
        self.stamps = 256
        self.memory = checked(driver.cuMemAlloc(16 * self.stamps))
        closing.callback(driver.cuMemFree, self.memory)

    def new_stream(self) -> Any:
        made = checked(driver.cuStreamCreate(1))
        self.closing.callback(driver.cuStreamDestroy, made)
        return made

    def new_event(self, *, timed: bool = False) -> Any:
        made = checked(driver.cuEventCreate(0 if timed else 2))
        self.closing.callback(driver.cuEventDestroy, made)
        return made

    def settle(self) -> None:
        checked(driver.cuCtxSynchronize())

    def launch(self, function: Any, arguments: Any = 0, stream: Any = None) -> None:
        on = self.stream if stream is None else stream
        checked(driver.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, on, arguments, 0))

    def spin(self, place: int, length_us: float, stream: Any = None) -> None:
        self.launch(self.spinning, self.spin_arguments(place, length_us), stream)

    def spin_arguments(self, place: int, length_us: float) -> tuple:
        values = (int(self.memory) + 16 * place, int(length_us * 1000 * self.scale))
        return values, (ctypes.c_void_p, ctypes.c_uint64)

    def touch_arguments(self, count: int) -> tuple:
        values = (int(self.memory), count, 0.5)
        return values, (ctypes.c_void_p, ctypes.c_uint32, ctypes.c_float)

    def read(self, count: int) -> np.ndarray:
        """The stamps of the first kernels: a row of begin and end for each, in microseconds."""
        found = np.zeros((count, 2), np.uint64)
        checked(driver.cuMemcpyDtoH(found.ctypes.data, self.memory, found.nbytes))
        return (found - found.min()).astype(np.float64) / 1000


def per_call(
    rig: Rig,
    call: Callable[[], object],
    *,
    calls: int = BURST,
    after: Callable[[], None] | None = None,
) -> Iterator[float]:
    """Microseconds of a call of a burst, sample by sample; the device is idle between two."""
    calls = 4 if rig.is_small else calls
    for _ in range(rig.samples):
        begin = time.perf_counter_ns()
        for _ in range(calls):
            call()
        taken = time.perf_counter_ns() - begin
        (after or rig.settle)()
        yield taken / calls / 1000


class Packed:
    """An array of pointers to values, for launches that pack nothing."""

    def __init__(self, arguments: tuple) -> None:
        values, types = arguments
        self._values = [kind(value) for kind, value in zip(types, values, strict=True)]
        self._pointers = np.array([ctypes.addressof(each) for each in self._values], np.uint64)
        self.address = self._pointers.ctypes.data
