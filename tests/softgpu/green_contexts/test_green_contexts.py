"""Green contexts: a part of a device with its own streams; all other state is the primary one's."""

from __future__ import annotations

import ctypes

import pytest
from cuda.bindings import driver
from helpers.driver.call_results import message, ok
from helpers.repository.subprocesses import run_text

from cudasync.softgpu import install

R = driver.CUresult
SM = driver.CUdevResourceType.CU_DEV_RESOURCE_TYPE_SM
NON_BLOCKING = 1


@pytest.fixture
def primary():
    install()
    ok(driver.cuInit(0))
    context = ok(driver.cuDevicePrimaryCtxRetain(0))
    ok(driver.cuCtxPushCurrent(context))
    yield context
    ok(driver.cuCtxPopCurrent())
    ok(driver.cuDevicePrimaryCtxRelease(0))


def parts(count=2):
    whole = ok(driver.cuDeviceGetDevResource(0, SM))
    groups, made, rest = ok(driver.cuDevSmResourceSplitByCount(count, whole, 0, 4))
    assert made == count
    return groups, rest


def create(*resources):
    return ok(driver.cuGreenCtxCreate(descriptor(*resources), 0, 1))


def descriptor(*resources):
    return ok(driver.cuDevResourceGenerateDesc(list(resources), len(resources)))


@pytest.fixture
def greens(primary):
    """Two green contexts, each with one half of the device."""
    made = [create(part) for part in parts()[0]]
    yield made
    for each in made:
        driver.cuGreenCtxDestroy(each)


def stream_of(green):
    return ok(driver.cuGreenCtxStreamCreate(green, NON_BLOCKING, 0))


def word():
    address = int(ok(driver.cuMemHostAlloc(4, 0)))
    place = ctypes.c_uint32.from_address(address)
    place.value = 0
    return address, place


def test_a_device_says_what_it_has(primary):
    whole = ok(driver.cuDeviceGetDevResource(0, SM))
    number = driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
    assert whole.sm.smCount == ok(driver.cuDeviceGetAttribute(number, 0))
    assert (whole.sm.minSmPartitionSize, whole.sm.smCoscheduledAlignment) == (4, 2)
    assert ok(driver.cuCtxGetDevResource(primary, SM)).sm.smCount == whole.sm.smCount


def test_the_number_of_groups_is_told_before_they_are_made(primary):
    whole = ok(driver.cuDeviceGetDevResource(0, SM))
    groups, count, _ = ok(driver.cuDevSmResourceSplitByCount(0, whole, 0, 2))
    assert not groups
    assert count == whole.sm.smCount // 4


def test_a_green_context_has_the_part_that_it_was_made_of(greens):
    green, other = greens
    for each in greens:
        assert ok(driver.cuGreenCtxGetDevResource(each, SM)).sm.smCount == 4
    context = ok(driver.cuCtxFromGreenCtx(green))
    assert ok(driver.cuCtxGetDevResource(context, SM)).sm.smCount == 4
    assert int(context) != int(ok(driver.cuCtxFromGreenCtx(other)))
    # A green context's resource can be split further, unlike the part of a split.
    again = ok(driver.cuGreenCtxGetDevResource(green, SM))
    assert ok(driver.cuDevSmResourceSplitByCount(1, again, 1, 2))[1] == 1
    refused = driver.cuDevSmResourceSplitByCount(1, parts()[0][0], 1, 2)[0]
    assert refused == R.CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION


def test_a_stream_knows_its_green_context(greens, primary):
    green, _ = greens
    stream, plain = stream_of(green), ok(driver.cuStreamCreate(NON_BLOCKING))
    assert int(ok(driver.cuStreamGetGreenCtx(stream))) == int(green)
    assert int(ok(driver.cuStreamGetGreenCtx(plain))) == 0
    assert int(ok(driver.cuStreamGetCtx(stream))) == int(ok(driver.cuCtxFromGreenCtx(green)))
    assert int(ok(driver.cuStreamGetCtx(plain))) == int(primary)
    if hasattr(driver, "cuStreamGetCtx_v2"):
        context, found = ok(driver.cuStreamGetCtx_v2(stream))
        assert (int(context), int(found)) == (int(primary), int(green))
    assert driver.cuGreenCtxStreamCreate(green, 0, 0)[0] == R.CUDA_ERROR_INVALID_VALUE


def test_what_is_current_is_the_green_context_and_streams_made_then_are_its(greens, primary):
    green, _ = greens
    context = ok(driver.cuCtxFromGreenCtx(green))
    ok(driver.cuCtxPushCurrent(context))
    assert int(ok(driver.cuCtxGetCurrent())) == int(context)
    stream = ok(driver.cuStreamCreate(NON_BLOCKING))
    for each in (stream, 0):
        assert int(ok(driver.cuStreamGetGreenCtx(each))) == int(green)
    ok(driver.cuCtxSetCurrent(primary))
    assert int(ok(driver.cuStreamGetGreenCtx(0))) == 0
    ok(driver.cuCtxSetCurrent(context))
    assert int(ok(driver.cuCtxPopCurrent())) == int(context)
    assert int(ok(driver.cuCtxGetCurrent())) == int(primary)


def test_memory_and_events_are_those_of_the_primary_context(greens, primary):
    """A green stream copies memory of the primary context, and its event can be compared."""
    stream = stream_of(greens[0])
    memory = ok(driver.cuMemAlloc(4))
    event = ok(driver.cuEventCreate(0))
    ok(driver.cuMemsetD32Async(memory, 7, 1, stream))
    ok(driver.cuEventRecord(event, stream))
    back = (ctypes.c_uint32 * 1)()
    ok(driver.cuMemcpyDtoHAsync(ctypes.addressof(back), memory, 4, stream))
    ok(driver.cuEventSynchronize(event))
    ok(driver.cuStreamSynchronize(stream))
    assert back[0] == 7


def test_an_event_stands_for_one_green_context_alone(greens):
    address, place = word()
    held, free = map(stream_of, greens)
    events = [ok(driver.cuEventCreate(2)) for _ in greens]
    ok(driver.cuStreamWaitValue32(held, address, 1, 1))
    for green, event in zip(greens, events, strict=True):
        ok(driver.cuGreenCtxRecordEvent(green, event))
    ok(driver.cuEventSynchronize(events[1]))
    ok(driver.cuStreamSynchronize(free))
    for _ in range(3):
        assert driver.cuEventQuery(events[0])[0] == R.CUDA_ERROR_NOT_READY
    place.value = 1
    ok(driver.cuEventSynchronize(events[0]))


def test_a_green_context_waits_with_the_streams_that_it_gets_later(greens):
    address, place = word()
    done, seen = word()
    source = ok(driver.cuStreamCreate(NON_BLOCKING))
    event = ok(driver.cuEventCreate(2))
    ok(driver.cuStreamWaitValue32(source, address, 1, 1))
    ok(driver.cuEventRecord(event, source))
    ok(driver.cuGreenCtxWaitEvent(greens[0], event))
    later, other = stream_of(greens[0]), stream_of(greens[1])
    ok(driver.cuStreamWriteValue32(later, done, 5, 0))
    ok(driver.cuStreamSynchronize(other))
    for _ in range(3):
        assert driver.cuStreamQuery(later)[0] == R.CUDA_ERROR_NOT_READY
    assert seen.value == 0
    place.value = 1
    ok(driver.cuStreamSynchronize(later))
    assert seen.value == 5


def test_streams_of_a_destroyed_green_context_can_only_be_destroyed(primary):
    green = create(parts()[0][0])
    address, place = word()
    stream = stream_of(green)
    ok(driver.cuStreamWriteValue32(stream, address, 3, 0))
    ok(driver.cuGreenCtxDestroy(green))
    assert driver.cuStreamQuery(stream)[0] == R.CUDA_ERROR_STREAM_DETACHED
    assert "destroyed" in message(R.CUDA_ERROR_STREAM_DETACHED)
    assert driver.cuGreenCtxDestroy(green)[0] == R.CUDA_ERROR_INVALID_CONTEXT
    ok(driver.cuStreamDestroy(stream))
    assert driver.cuStreamDestroy(stream)[0] == R.CUDA_ERROR_INVALID_HANDLE
    ok(driver.cuCtxSynchronize())
    assert place.value == 3


# In its own process, because other tests keep their primary context.
KEEPS = """
    from cuda.bindings import driver
    from helpers.driver.call_results import ok
    from cudasync.softgpu import install

    install()
    ok(driver.cuInit(0))
    kind = driver.CUdevResourceType.CU_DEV_RESOURCE_TYPE_SM
    whole = ok(driver.cuDeviceGetDevResource(0, kind))
    (part,), _, _ = ok(driver.cuDevSmResourceSplitByCount(1, whole, 0, 4))
    green = ok(driver.cuGreenCtxCreate(ok(driver.cuDevResourceGenerateDesc([part], 1)), 0, 1))
    print(ok(driver.cuDevicePrimaryCtxGetState(0))[1])
    ok(driver.cuGreenCtxDestroy(green))
    print(ok(driver.cuDevicePrimaryCtxGetState(0))[1])
"""


def test_a_green_context_keeps_the_primary_one():
    assert run_text(KEEPS, 60) == (0, "1\n0\n")


def test_what_is_no_descriptor_is_refused(primary):
    whole = ok(driver.cuDeviceGetDevResource(0, SM))
    first, _ = parts()
    second, _ = parts()
    wrong = R.CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION
    for pair in ((first[0], second[1]), (first[0], first[0]), (whole, first[0])):
        assert driver.cuDevResourceGenerateDesc(list(pair), 2)[0] == wrong
    made_up = driver.CUdevResource()
    made_up.type = SM
    assert driver.cuDevResourceGenerateDesc([made_up], 1)[0] == R.CUDA_ERROR_INVALID_VALUE
    made_up.type = driver.CUdevResourceType.CU_DEV_RESOURCE_TYPE_INVALID
    refused = driver.cuDevResourceGenerateDesc([made_up], 1)[0]
    assert refused == R.CUDA_ERROR_INVALID_RESOURCE_TYPE
    assert ok(driver.cuDevResourceGenerateDesc(first, 2))


def test_a_green_context_is_no_context(greens):
    assert driver.cuCtxSetCurrent(driver.CUcontext(int(greens[0])))[0] == (
        R.CUDA_ERROR_INVALID_CONTEXT
    )
    context = ok(driver.cuCtxFromGreenCtx(greens[0]))
    assert driver.cuCtxDestroy(context)[0] == R.CUDA_ERROR_INVALID_CONTEXT


PTX = b""".version 7.0
.target sm_80
.address_size 64
.visible .entry nothing() { ret; }
"""


def test_a_cooperative_launch_must_fit_into_the_part(greens):
    """Half of the device runs half as many blocks at once."""
    function = ok(driver.cuModuleGetFunction(ok(driver.cuModuleLoadData(PTX)), b"nothing"))
    each = ok(driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(function, 1024, 0))

    def launch(stream, blocks):
        return driver.cuLaunchCooperativeKernel(
            function, blocks, 1, 1, 1024, 1, 1, 0, stream, None
        )[0]

    green, plain = stream_of(greens[0]), ok(driver.cuStreamCreate(NON_BLOCKING))
    assert launch(green, 4 * each) == R.CUDA_SUCCESS
    assert launch(green, 4 * each + 1) == R.CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE
    assert launch(plain, 8 * each) == R.CUDA_SUCCESS
    ok(driver.cuCtxSynchronize())


def test_a_record_of_a_green_context_minds_its_own_captures(greens):
    captured, _ = map(stream_of, greens)
    event = ok(driver.cuEventCreate(2))
    relaxed = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
    ok(driver.cuStreamBeginCapture(captured, relaxed))
    ok(driver.cuGreenCtxRecordEvent(greens[1], event))
    refused = driver.cuGreenCtxRecordEvent(greens[0], event)[0]
    assert refused == R.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
    ended = driver.cuStreamEndCapture(captured)[0]
    assert ended == R.CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
