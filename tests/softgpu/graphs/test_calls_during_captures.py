"""Which calls disturb a capture of another stream: measured on an H200 with driver 580.

Each call is made while a stream is captured, by the capturing thread or another one, for each mode
of the capture and of the calling thread.
"""

from __future__ import annotations

import ctypes
import threading

import pytest
from cuda.bindings import driver
from helpers.driver.call_results import ok
from helpers.driver.graph_builder import CODES, code
from helpers.driver.stream_capture import (
    ACTIVE,
    GLOBAL,
    INVALIDATED,
    RELAXED,
    THREAD_LOCAL,
    UNSUPPORTED,
    begin,
    is_invalid_until_its_end,
    status,
)

INVALID = CODES.CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
MODES = {"global": GLOBAL, "thread_local": THREAD_LOCAL, "relaxed": RELAXED}
PTX = b""".version 6.4
.target sm_75
.address_size 64
.visible .entry nothing() { ret; }
.visible .entry another() { ret; }
\0"""


class Things:
    """What the calls need: all of it was made before the capture."""

    def __init__(self):
        self.captured, self.side = (ok(driver.cuStreamCreate(1)) for _ in range(2))
        self.memory, self.spare = (ok(driver.cuMemAlloc(256)) for _ in range(2))
        self.pinned, self.spare_pinned = (ok(driver.cuMemAllocHost(256)) for _ in range(2))
        self.pageable = ctypes.create_string_buffer(256)
        self.pages = ctypes.create_string_buffer(3 * 4096)
        self.pooled = ok(driver.cuMemAllocAsync(64, self.side))
        self.pool = ok(driver.cuDeviceGetDefaultMemPool(0))
        self.event, self.spare_event = (ok(driver.cuEventCreate(2)) for _ in range(2))
        self.spare_stream = ok(driver.cuStreamCreate(1))
        self.module = ok(driver.cuModuleLoadData(PTX))
        self.function = ok(driver.cuModuleGetFunction(self.module, b"nothing"))
        self.graph = ok(driver.cuGraphCreate(0))
        self.executable, self.spare_executable = (
            ok(driver.cuGraphInstantiate(self.graph, 0)) for _ in range(2)
        )
        ok(driver.cuEventRecord(self.event, self.side))
        ok(driver.cuCtxSynchronize())

    @property
    def host(self):
        return ctypes.addressof(self.pageable)

    @property
    def page(self):
        return -(-ctypes.addressof(self.pages) // 4096) * 4096

    def launch(self, stream):
        return driver.cuLaunchKernel(self.function, 1, 1, 1, 1, 1, 1, 0, stream, 0, 0)


# Refused where the modes say so. None of these calls names the captured stream.
UNSAFE = {
    "cuMemAlloc": lambda t: driver.cuMemAlloc(64),
    "cuMemAllocHost": lambda t: driver.cuMemAllocHost(64),
    "cuMemAllocManaged": lambda t: driver.cuMemAllocManaged(64, 1),
    "cuMemAllocAsync": lambda t: driver.cuMemAllocAsync(64, t.side),
    "cuMemAllocFromPoolAsync": lambda t: driver.cuMemAllocFromPoolAsync(64, t.pool, t.side),
    "cuMemFree": lambda t: driver.cuMemFree(t.spare),
    "cuMemFreeHost": lambda t: driver.cuMemFreeHost(t.spare_pinned),
    "cuMemFreeAsync": lambda t: driver.cuMemFreeAsync(t.pooled, t.side),
    "cuMemHostRegister": lambda t: driver.cuMemHostRegister(t.page, 4096, 0),
    "cuMemPoolTrimTo": lambda t: driver.cuMemPoolTrimTo(t.pool, 0),
    "cuMemPoolGetAttribute": lambda t: driver.cuMemPoolGetAttribute(
        t.pool, driver.CUmemPool_attribute.CU_MEMPOOL_ATTR_USED_MEM_CURRENT
    ),
    "cuEventQuery": lambda t: driver.cuEventQuery(t.event),
    "cuEventSynchronize": lambda t: driver.cuEventSynchronize(t.event),
    "cuStreamQuery": lambda t: driver.cuStreamQuery(t.side),
    "cuStreamSynchronize": lambda t: driver.cuStreamSynchronize(t.side),
    "cuGraphInstantiate": lambda t: driver.cuGraphInstantiate(t.graph, 0),
    "cuGraphExecDestroy": lambda t: driver.cuGraphExecDestroy(t.spare_executable),
}
ALWAYS_REFUSED = {
    "cuCtxSynchronize": lambda t: driver.cuCtxSynchronize(),
    "cuGraphLaunch of the captured stream": lambda t: driver.cuGraphLaunch(
        t.executable, t.captured
    ),
}
SAFE = {
    "cuEventCreate": lambda t: driver.cuEventCreate(0),
    "cuEventRecord": lambda t: driver.cuEventRecord(t.event, t.side),
    "cuEventDestroy": lambda t: driver.cuEventDestroy(t.spare_event),
    "cuStreamCreate": lambda t: driver.cuStreamCreate(1),
    "cuStreamDestroy": lambda t: driver.cuStreamDestroy(t.spare_stream),
    "cuStreamWaitEvent": lambda t: driver.cuStreamWaitEvent(t.side, t.event, 0),
    "cuStreamIsCapturing": lambda t: driver.cuStreamIsCapturing(driver.CUstream(1)),
    "cuLaunchKernel": lambda t: t.launch(t.side),
    "cuLaunchKernel of the legacy stream": lambda t: t.launch(driver.CUstream(1)),
    "cuMemcpyHtoDAsync": lambda t: driver.cuMemcpyHtoDAsync(t.memory, t.host, 64, t.side),
    "cuMemcpyHtoDAsync, pinned": lambda t: driver.cuMemcpyHtoDAsync(t.memory, t.pinned, 64, t.side),
    "cuMemcpyDtoHAsync": lambda t: driver.cuMemcpyDtoHAsync(t.host, t.memory, 64, t.side),
    "cuMemcpyDtoDAsync": lambda t: driver.cuMemcpyDtoDAsync(
        t.memory, int(t.memory) + 64, 64, t.side
    ),
    "cuMemcpyHtoD": lambda t: driver.cuMemcpyHtoD(t.memory, t.host, 64),
    "cuMemcpyDtoH": lambda t: driver.cuMemcpyDtoH(t.host, t.memory, 64),
    "cuMemsetD8Async": lambda t: driver.cuMemsetD8Async(t.memory, 0, 64, t.side),
    "cuMemsetD8": lambda t: driver.cuMemsetD8(t.memory, 0, 64),
    "cuModuleLoadData": lambda t: driver.cuModuleLoadData(PTX),
    "cuModuleGetFunction": lambda t: driver.cuModuleGetFunction(t.module, b"another"),
    "cuFuncGetAttribute": lambda t: driver.cuFuncGetAttribute(
        driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_NUM_REGS, t.function
    ),
    "cuMemGetInfo": lambda t: driver.cuMemGetInfo(),
    "cuGraphLaunch": lambda t: driver.cuGraphLaunch(t.executable, t.side),
    "cuStreamWaitValue32": lambda t: driver.cuStreamWaitValue32(t.side, t.pinned, 0, 0),
    "cuStreamGetCtx": lambda t: driver.cuStreamGetCtx(t.side),
    "cuOccupancyMaxActiveBlocksPerMultiprocessor": lambda t: (
        driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(t.function, 32, 0)
    ),
}
CALLS = UNSAFE | ALWAYS_REFUSED | SAFE


def answers(context, things, mode, thread_mode, *, is_other):
    """For each call its code, and what became of the capture."""
    found = {}

    def make(name):
        ok(driver.cuCtxSetCurrent(context))
        before = ok(driver.cuThreadExchangeStreamCaptureMode(thread_mode))
        found[name] = [code(CALLS[name](things))]
        ok(driver.cuThreadExchangeStreamCaptureMode(before))

    for name in CALLS:
        begin(things.captured, mode)
        if is_other:
            thread = threading.Thread(target=make, args=(name,))
            thread.start()
            thread.join()
        else:
            make(name)
        found[name].append(status(things.captured))
        found[name].append(code(driver.cuStreamEndCapture(things.captured)))
    return found


@pytest.mark.parametrize("thread_mode", MODES)
@pytest.mark.parametrize("is_other", [False, True], ids=["same", "other"])
@pytest.mark.parametrize("mode", MODES)
def test_the_modes_say_which_calls_end_a_capture(context, mode, is_other, thread_mode):
    refused, fine = [UNSUPPORTED, INVALIDATED, INVALID], [0, ACTIVE, 0]
    if is_other:
        is_unsafe_refused = mode == thread_mode == "global"
    else:
        is_unsafe_refused = "relaxed" not in (mode, thread_mode)
    expected = dict.fromkeys(UNSAFE, refused if is_unsafe_refused else fine)
    expected |= dict.fromkeys(ALWAYS_REFUSED, refused) | dict.fromkeys(SAFE, fine)
    found = answers(context, Things(), MODES[mode], MODES[thread_mode], is_other=is_other)
    wrong = {name: each for name, each in found.items() if each != expected[name]}
    # Work of other streams may be unfinished: a query may say so.
    assert not {n: f for n, f in wrong.items() if f != [CODES.CUDA_ERROR_NOT_READY, ACTIVE, 0]}


@pytest.mark.parametrize("mode", MODES.values())
def test_a_graph_that_a_broken_capture_was_for_is_gone(kernels, side, mode):
    graph = ok(driver.cuGraphCreate(0))
    executable = ok(driver.cuGraphInstantiate(ok(driver.cuGraphCreate(0)), 0))
    ok(driver.cuStreamBeginCaptureToGraph(side, graph, None, None, 0, mode))
    assert code(driver.cuGraphLaunch(executable, side)) == UNSUPPORTED
    assert is_invalid_until_its_end(side)
    assert code(driver.cuGraphDestroy(graph)) == CODES.CUDA_ERROR_INVALID_VALUE
