"""A client of the driver with many threads, each of which checks its results bit by bit.

Each thread loads modules, allocates, copies, launches on its own streams, records and awaits
events, captures graphs and frees, as its seed decides. All threads count in two shared words.
"""

from __future__ import annotations

import ctypes
import random
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from cuda.bindings import driver
from helpers.concurrency.thread_crew import together
from helpers.driver.call_results import ok

# Texts that differ in a comment: more than the driver caches.
TEXTS = 100
WORDS = 256
BLOCK = 64
# Captures do not restrict other threads.
THREAD_LOCAL = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
NOT_READY = driver.CUresult.CUDA_ERROR_NOT_READY
POINTER, UNSIGNED = ctypes.c_void_p, ctypes.c_uint32

PTX = """.version 6.4
.target sm_75
.address_size 64
.visible .global .align 4 .u32 launches;
.visible .entry mix(.param .u64 out, .param .u64 in, .param .u32 factor, .param .u64 count)
{{
    .reg .u32 %i, %block, %size, %value, %factor;
    .reg .u64 %rd_out, %rd_in, %rd_count, %rd_offset;
    .reg .pred %p;
    ld.param.u64 %rd_out, [out];
    ld.param.u64 %rd_in, [in];
    ld.param.u32 %factor, [factor];
    ld.param.u64 %rd_count, [count];
    mov.u32 %i, %ctaid.x;
    mov.u32 %size, %ntid.x;
    mov.u32 %value, %tid.x;
    mad.lo.u32 %i, %i, %size, %value;
    mul.wide.u32 %rd_offset, %i, 4;
    add.u64 %rd_out, %rd_out, %rd_offset;
    add.u64 %rd_in, %rd_in, %rd_offset;
    ld.global.u32 %value, [%rd_in];
    mad.lo.u32 %value, %value, %factor, %i;
    st.global.u32 [%rd_out], %value;
    setp.ne.u32 %p, %i, 0;
    @%p ret;
    red.global.add.u32 [%rd_count], 1;
    red.global.add.u32 [launches], 1;
    ret;
}}
// {number}
"""


def mixed(words: np.ndarray[Any, Any], factor: int) -> np.ndarray[Any, Any]:
    """The kernel's result for `words`."""
    return words * np.uint32(factor) + np.arange(WORDS, dtype=np.uint32)


class Client:
    """The threads and their shared state: a count, and a library with a variable that counts
    too."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._context = ok(driver.cuCtxGetCurrent())
        self.count = int(ok(driver.cuMemAlloc(4)))
        ok(driver.cuMemsetD32(self.count, 0, 1))
        # The memset returns before it writes, and non-blocking streams may run ahead of it.
        ok(driver.cuCtxSynchronize())
        text = PTX.format(number="a library").encode()
        self._library = ok(driver.cuLibraryLoadData(text, [], [], 0, [], [], 0))
        self._kernel = ok(driver.cuLibraryGetKernel(self._library, b"mix"))
        self.launched: list[bool] = []

    def run(self, threads: int, goes_on: Callable[[int], bool]) -> int:
        """Run rounds on each thread while `goes_on(rounds)`; return the number of launches."""

        def body(index: int) -> Callable[[], None]:
            def work() -> None:
                ok(driver.cuCtxSetCurrent(self._context))
                chance = random.Random(1000 * self._seed + index)
                rounds = 0
                while goes_on(rounds):
                    Round(self, chance).run()
                    rounds += 1

            return work

        together(*map(body, range(threads)), patience_s=300.0)
        assert self._read(self.count) == len(self.launched)
        place, size = ok(driver.cuLibraryGetGlobal(self._library, b"launches"))
        assert (int(size), self._read(int(place))) == (4, sum(self.launched))
        ok(driver.cuLibraryUnload(self._library))
        ok(driver.cuMemFree(self.count))
        return len(self.launched)

    def kernel(self, chance: random.Random) -> tuple[Any, Any]:
        """A kernel and the module to unload; the module is None for the library's kernel."""
        if chance.random() < 0.4:
            return driver.CUfunction(int(self._kernel)), None
        text = PTX.format(number=chance.randrange(TEXTS)).encode()
        module = ok(driver.cuModuleLoadData(text))
        return ok(driver.cuModuleGetFunction(module, b"mix")), module

    @staticmethod
    def _read(address: int) -> int:
        word = np.zeros(1, np.uint32)
        ok(driver.cuMemcpyDtoH(word.ctypes.data, address, 4))
        return int(word[0])


class Round:
    """One thread's work from an allocation to the free."""

    def __init__(self, client: Client, chance: random.Random) -> None:
        self._client = client
        self._chance = chance
        self._function, self._module = client.kernel(chance)
        self._streams = [ok(driver.cuStreamCreate(chance.choice([0, 1]))) for _ in range(2)]
        self._event = ok(driver.cuEventCreate(chance.choice([0, 2])))
        size = 4 * WORDS
        self._host = [int(ok(driver.cuMemHostAlloc(size, 0))) for _ in range(2)]
        self._is_async = chance.random() < 0.5
        first = self._streams[0]
        self._device = [
            int(ok(driver.cuMemAllocAsync(size, first)))
            if self._is_async
            else int(ok(driver.cuMemAlloc(size)))
            for _ in range(2)
        ]
        self._pinned = [
            np.frombuffer((ctypes.c_ubyte * size).from_address(each), np.uint32)
            for each in self._host
        ]

    def run(self) -> None:
        """Copy in, launch, copy out and compare; then destroy and free everything."""
        chance, size = self._chance, 4 * WORDS
        first, second = self._streams
        words = np.arange(WORDS, dtype=np.uint32) + np.uint32(chance.randrange(1 << 31))
        self._pinned[0][:] = words
        ok(driver.cuMemcpyHtoDAsync(self._device[0], self._host[0], size, first))
        factors = [chance.randrange(1, 1 << 31) for _ in range(2)]
        executable = None
        if chance.random() < 0.5:
            executable = self._captured(factors, first)
            for _ in range(times := chance.randrange(1, 4)):
                ok(driver.cuGraphLaunch(executable, first))
            self._note(2 * times)
        else:
            self._launch_both(factors, first)
            times = 1
            self._note(2)
        if executable is not None and chance.random() < 0.5:
            ok(driver.cuGraphExecDestroy(executable))
            executable = None
        for factor in times * factors:
            words = mixed(words, factor)
        ok(driver.cuEventRecord(self._event, first))
        ok(driver.cuStreamWaitEvent(second, self._event, 0))
        ok(driver.cuMemcpyDtoHAsync(self._host[1], self._device[0], size, second))
        self._wait(second)
        assert np.array_equal(self._pinned[1], words)
        if executable is not None:
            ok(driver.cuGraphExecDestroy(executable))
        self._end()

    def _note(self, launches: int) -> None:
        self._client.launched += [self._module is None] * launches

    def _launch_both(self, factors: list[int], stream: Any) -> None:
        to, back = self._device[1], self._device[0]
        for out, source, factor in ((to, back, factors[0]), (back, to, factors[1])):
            values = (out, source, factor, self._client.count)
            arguments = values, (POINTER, POINTER, UNSIGNED, POINTER)
            ok(driver.cuLaunchKernel(
                self._function, WORDS // BLOCK, 1, 1, BLOCK, 1, 1, 0, stream, arguments, 0
            ))  # fmt: skip

    def _captured(self, factors: list[int], stream: Any) -> Any:
        ok(driver.cuStreamBeginCapture(stream, THREAD_LOCAL))
        self._launch_both(factors, stream)
        graph = ok(driver.cuStreamEndCapture(stream))
        executable = ok(driver.cuGraphInstantiate(graph, 0))
        ok(driver.cuGraphDestroy(graph))
        return executable

    def _wait(self, stream: Any) -> None:
        match self._chance.randrange(3):
            case 0:
                ok(driver.cuStreamSynchronize(stream))
            case 1:
                ok(driver.cuEventRecord(self._event, stream))
                ok(driver.cuEventSynchronize(self._event))
            case _:
                while (code := driver.cuStreamQuery(stream)[0]) == NOT_READY:
                    pass
                ok((code,))

    def _end(self) -> None:
        self._pinned.clear()
        for each in self._device:
            if self._is_async:
                ok(driver.cuMemFreeAsync(each, self._streams[1]))
            else:
                ok(driver.cuMemFree(each))
        for address in self._host:
            ok(driver.cuMemFreeHost(address))
        ok(driver.cuEventDestroy(self._event))
        for stream in self._streams:
            ok(driver.cuStreamDestroy(stream))
        if self._module is not None:
            ok(driver.cuModuleUnload(self._module))


def until(seconds: float) -> Callable[[int], bool]:
    """For `Client.run`: go on for `seconds`, and for at least one round on each thread."""
    end = time.monotonic() + seconds
    return lambda rounds: not rounds or time.monotonic() < end
