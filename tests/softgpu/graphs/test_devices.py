"""Graphs across devices, on default streams, and beside other work."""

from __future__ import annotations

import pytest
from cuda.bindings import driver
from helpers.driver.call_results import ok
from helpers.driver.graph_builder import CODES, GraphText, Kernels, Words, code, kinds_of, run

import cudasync as cs

GLOBAL = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL


@pytest.fixture
def far(context):
    """The primary context of another device, with a stream and kernels; `context` is current."""
    count = ok(driver.cuDeviceGetCount())
    device = ok(driver.cuDeviceGet(1 % count))
    primary = ok(driver.cuDevicePrimaryCtxRetain(device))
    ok(driver.cuCtxPushCurrent(primary))
    kernels = Kernels(primary)
    kernels.stream = ok(driver.cuStreamCreate(1))
    kernels.words = Words(4)
    kernels.event = ok(driver.cuEventCreate(2))
    ok(driver.cuCtxPopCurrent())
    yield kernels
    # The library resets the device, because it keeps memory of that context too.
    cs.Device(1 % count).reset()
    driver.cuDevicePrimaryCtxRelease(device)


def test_a_capture_forks_to_another_device(kernels, far, side):
    x = Words(4)
    event = ok(driver.cuEventCreate(2))
    ok(driver.cuStreamBeginCapture(side, GLOBAL))
    kernels.launch_set(side, x, 1)
    ok(driver.cuEventRecord(event, side))
    ok(driver.cuStreamWaitEvent(far.stream, event, 0))
    far.launch_set(far.stream, far.words, 10)
    ok(driver.cuMemcpyDtoDAsync(far.words.address + 8, x.address, 8, far.stream))
    ok(driver.cuEventRecord(far.event, far.stream))
    ok(driver.cuStreamWaitEvent(side, far.event, 0))
    ok(driver.cuMemcpyDtoDAsync(x.address, far.words.address, 16, side))
    graph = ok(driver.cuStreamEndCapture(side))
    assert kinds_of(graph) == ["KERNEL", "KERNEL", "MEMCPY", "MEMCPY"]
    run(ok(driver.cuGraphInstantiate(graph, 0)), side, times=2)
    assert x.read() == [10, 11, 1, 2]


def test_a_fault_on_one_device_leaves_the_other_alone(kernels, far, side):
    x = Words(4)
    text = GraphText(kernels)
    text.kernel(far.mix_params(far.words, x, 1))
    executable = text.instantiate()
    ok(driver.cuGraphLaunch(executable, side))
    ok(driver.cuStreamSynchronize(side))
    illegal = CODES.CUDA_ERROR_ILLEGAL_ADDRESS
    assert code(driver.cuStreamSynchronize(far.stream)) == illegal
    assert code(driver.cuGraphLaunch(executable, side)) == illegal
    kernels.launch_set(side, x, 3)
    ok(driver.cuStreamSynchronize(side))
    assert x.read() == [3, 4, 5, 6]


@pytest.mark.parametrize("where", ["legacy", "blocking"])
def test_a_launch_joins_with_the_legacy_stream(graph, kernels, where):
    x = Words(4)
    graph.mix(x, x, 0)
    executable = graph.instantiate()
    blocking = ok(driver.cuStreamCreate(0))
    legacy = driver.CUstream(driver.CU_STREAM_LEGACY)
    launching, other = (legacy, blocking) if where == "legacy" else (blocking, legacy)
    kernels.launch_set(other, x, 1)
    ok(driver.cuGraphLaunch(executable, launching))
    kernels.launch_mix(other, x, x, 1)
    ok(driver.cuStreamSynchronize(other))
    assert x.read() == [32 * (31 * (1 + i) + i) + i for i in range(4)]


@pytest.mark.lazy
def test_a_graph_is_as_long_as_its_longest_path(graph, side):
    """In virtual time, unordered nodes overlap."""

    def duration(executable):
        start, end = (ok(driver.cuEventCreate(0)) for _ in range(2))
        ok(driver.cuEventRecord(start, side))
        ok(driver.cuGraphLaunch(executable, side))
        ok(driver.cuEventRecord(end, side))
        ok(driver.cuEventSynchronize(end))
        return ok(driver.cuEventElapsedTime(start, end))

    words = [Words(4) for _ in range(4)]
    for each in words:
        graph.set(each, 1)
    wide = duration(graph.instantiate())
    chain = GraphText(graph.kernels)
    before = []
    for each in words:
        before = [chain.set(each, 1, before)]
    assert duration(chain.instantiate()) == pytest.approx(4 * wide, rel=0.01)


def test_the_default_stream_of_a_thread_can_be_captured(kernels):
    x = Words(4)
    own = driver.CUstream(driver.CU_STREAM_PER_THREAD)
    ok(driver.cuStreamBeginCapture(own, GLOBAL))
    kernels.launch_set(own, x, 1)
    graph = ok(driver.cuStreamEndCapture(own))
    ok(driver.cuGraphLaunch(ok(driver.cuGraphInstantiate(graph, 0)), own))
    assert x.read() == [1, 2, 3, 4]
