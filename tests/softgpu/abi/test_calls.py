"""Calls of the software GPU through the real cuda.bindings: what the C ABI returns."""

from __future__ import annotations

import ctypes
import threading

import numpy as np
import pytest
from cuda.bindings import driver
from helpers.driver.call_results import held, message, ok

from cudasync.softgpu.interface.poison import PATTERN

INVALID_VALUE = driver.CUresult.CUDA_ERROR_INVALID_VALUE
INVALID_HANDLE = driver.CUresult.CUDA_ERROR_INVALID_HANDLE


@pytest.fixture
def stream(context):
    return ok(driver.cuStreamCreate(1))


def test_a_round_trip_through_the_device(stream):
    source = np.arange(1000, dtype=np.float32)
    target = np.zeros_like(source)
    memory = ok(driver.cuMemAlloc(source.nbytes))
    ok(driver.cuMemcpyHtoDAsync(memory, source.ctypes.data, source.nbytes, stream))
    ok(driver.cuMemcpyDtoHAsync(target.ctypes.data, memory, source.nbytes, stream))
    assert (source == target).all()
    ok(driver.cuMemFree(memory))


def test_a_pageable_source_is_read_at_the_call_and_a_pinned_one_later(stream):
    pinned = ok(driver.cuMemHostAlloc(4, 0))
    word = ctypes.c_uint32.from_address(int(pinned))
    pageable = ctypes.c_uint32(1)
    word.value = 1
    device = ok(driver.cuMemAlloc(8))
    with held(stream):
        ok(driver.cuMemcpyHtoDAsync(device, ctypes.addressof(pageable), 4, stream))
        ok(driver.cuMemcpyHtoDAsync(int(device) + 4, int(pinned), 4, stream))
        pageable.value = word.value = 2
    back = (ctypes.c_uint32 * 2)()
    ok(driver.cuMemcpyDtoHAsync(ctypes.addressof(back), device, 8, stream))
    assert list(back) == [1, 2]


def test_fresh_memory_is_poisoned(context):
    memory = ok(driver.cuMemAlloc(16))
    back = ctypes.create_string_buffer(16)
    ok(driver.cuMemcpyDtoH(ctypes.addressof(back), memory, 16))
    assert back.raw == PATTERN * 8


@pytest.mark.parametrize(("fill", "size"), [("D8", 1), ("D16", 2), ("D32", 4)])
def test_memsets_write_their_word_and_no_further(stream, fill, size):
    memory = ok(driver.cuMemAlloc(64))
    value = 0x12345678 & (1 << 8 * size) - 1
    ok(getattr(driver, f"cuMemset{fill}Async")(memory, value, 7, stream))
    ok(driver.cuStreamSynchronize(stream))
    back = ctypes.create_string_buffer(64)
    ok(driver.cuMemcpyDtoH(ctypes.addressof(back), memory, 64))
    assert back.raw == value.to_bytes(size, "little") * 7 + (PATTERN * 32)[7 * size :]


def test_a_copy_that_does_not_fit_is_refused_with_the_allocation_named(context):
    memory = ok(driver.cuMemAlloc(16))
    data = bytes(32)
    (code,) = driver.cuMemcpyHtoD(memory, data, 17)
    assert code == INVALID_VALUE
    assert "pass the end" in message(code)
    assert "test_calls.py" in message(code)


def test_freed_memory_is_told_apart_from_unknown_memory(context):
    memory = ok(driver.cuMemAlloc(16))
    ok(driver.cuMemFree(memory))
    (code,) = driver.cuMemFree(memory)
    assert code == INVALID_VALUE
    assert "freed at" in message(code)
    (code,) = driver.cuMemFree(12345)
    assert code == INVALID_VALUE
    assert "not in an allocation" in message(code)


def test_memory_runs_out_with_the_right_code_and_comes_back(context):
    free, total = ok(driver.cuMemGetInfo())
    assert driver.cuMemAlloc(total + 1)[0] == driver.CUresult.CUDA_ERROR_OUT_OF_MEMORY
    memory = ok(driver.cuMemAlloc(free // 2))
    assert driver.cuMemAlloc(free // 2 + 4096)[0] == driver.CUresult.CUDA_ERROR_OUT_OF_MEMORY
    ok(driver.cuMemFree(memory))
    ok(driver.cuMemFree(ok(driver.cuMemAlloc(free // 2 + 4096))))


def test_stream_ordered_memory_lives_from_its_alloc_to_its_free(stream):
    memory = ok(driver.cuMemAllocAsync(64, stream))
    ok(driver.cuMemsetD8Async(memory, 7, 64, stream))
    ok(driver.cuMemFreeAsync(memory, stream))
    assert driver.cuMemsetD8Async(memory, 7, 64, stream)[0] == INVALID_VALUE
    ok(driver.cuStreamSynchronize(stream))


def test_stream_ordered_memory_used_too_early_is_a_fault(context, stream):
    """The other stream has no wait, so the allocation has not happened there yet."""
    other = ok(driver.cuStreamCreate(1))
    with held(stream):
        memory = ok(driver.cuMemAllocAsync(64, stream))
        ok(driver.cuMemsetD8Async(memory, 7, 64, other))
        (code,) = driver.cuStreamSynchronize(other)
    assert code == driver.CUresult.CUDA_ERROR_ILLEGAL_ADDRESS
    assert "not live" in message(code)
    assert driver.cuStreamQuery(other)[0] == code
    assert driver.cuMemAlloc(4)[0] == code


@pytest.mark.parametrize("handle", [3, 0x5C00FFFFFFFF, 1 << 63])
def test_made_up_handles_are_errors(context, handle):
    assert driver.cuStreamQuery(handle)[0] == INVALID_HANDLE
    assert driver.cuStreamDestroy(handle)[0] == INVALID_HANDLE
    assert driver.cuEventQuery(handle)[0] == INVALID_HANDLE
    assert driver.cuCtxSetCurrent(handle)[0] == driver.CUresult.CUDA_ERROR_INVALID_CONTEXT


def test_a_handle_dies_with_its_object(stream):
    event = ok(driver.cuEventCreate(0))
    ok(driver.cuEventDestroy(event))
    assert driver.cuEventRecord(event, stream)[0] == INVALID_HANDLE
    ok(driver.cuStreamDestroy(stream))
    assert driver.cuStreamQuery(stream)[0] == INVALID_HANDLE


def test_without_a_context_there_is_nothing_to_do(context):
    found = []

    def call():
        found.append(driver.cuMemAlloc(4)[0])
        found.append(driver.cuCtxSynchronize()[0])

    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    assert found == [driver.CUresult.CUDA_ERROR_INVALID_CONTEXT] * 2


def test_events_measure_time_once_they_are_reached(stream):
    start, end = ok(driver.cuEventCreate(0)), ok(driver.cuEventCreate(0))
    memory = ok(driver.cuMemAlloc(1 << 20))
    with held(stream):
        ok(driver.cuEventRecord(start, stream))
        ok(driver.cuMemsetD8Async(memory, 0, 1 << 20, stream))
        ok(driver.cuEventRecord(end, stream))
        not_ready = driver.CUresult.CUDA_ERROR_NOT_READY
        assert driver.cuEventElapsedTime(start, end)[0] == not_ready
    ok(driver.cuEventSynchronize(end))
    assert ok(driver.cuEventElapsedTime(start, end)) > 0
    untimed = ok(driver.cuEventCreate(2))
    ok(driver.cuEventRecord(untimed, stream))
    assert driver.cuEventElapsedTime(start, untimed)[0] == INVALID_HANDLE


def test_host_functions_run_in_stream_order(stream):
    seen = []

    @ctypes.CFUNCTYPE(None, ctypes.c_void_p)
    def note(data):
        # A driver call from a host function is refused, and does not hang.
        seen.append((data, driver.cuStreamSynchronize(stream)[0]))

    function = ctypes.cast(note, ctypes.c_void_p).value
    with held(stream):
        for number in (1, 2, 3):
            ok(driver.cuLaunchHostFunc(stream, function, number))
        assert seen == []
    ok(driver.cuStreamSynchronize(stream))
    refused = driver.CUresult.CUDA_ERROR_NOT_PERMITTED
    assert seen == [(1, refused), (2, refused), (3, refused)]


def test_a_host_function_that_blocks_holds_only_its_stream(stream):
    other = ok(driver.cuStreamCreate(1))
    gate = threading.Event()
    blocking = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: gate.wait() and None)
    function = ctypes.cast(blocking, ctypes.c_void_p).value
    ok(driver.cuLaunchHostFunc(stream, function, 0))
    event = ok(driver.cuEventCreate(0))
    ok(driver.cuEventRecord(event, stream))
    memory = ok(driver.cuMemAlloc(4))
    ok(driver.cuMemsetD8Async(memory, 1, 4, other))
    ok(driver.cuStreamSynchronize(other))
    for _ in range(3):
        assert driver.cuEventQuery(event)[0] == driver.CUresult.CUDA_ERROR_NOT_READY
    gate.set()
    ok(driver.cuStreamSynchronize(stream))
    ok(driver.cuEventQuery(event))


def test_null_out_pointers_are_invalid_values(context):
    function = driver.cuDriverGetVersion  # loads the table
    ok(function())
    library = ctypes.CDLL("libcuda.so.1")
    for name, arguments in [
        ("cuMemAlloc", (None, ctypes.c_size_t(4))),
        ("cuStreamCreate", (None, 0)),
        ("cuEventCreate", (None, 0)),
        ("cuDeviceGetCount", (None,)),
        ("cuDriverGetVersion", (None,)),
    ]:
        assert getattr(library, name)(*arguments) == int(INVALID_VALUE), name


def test_every_result_code_has_its_name_and_some_words(context):
    for code in driver.CUresult:
        assert ok(driver.cuGetErrorName(code)).decode() == code.name
        assert message(code)


def test_pointer_attributes_tell_what_an_address_is(context):
    memory = ok(driver.cuMemAlloc(100))
    kind = driver.CUpointer_attribute
    wanted = [
        kind.CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
        kind.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
        kind.CU_POINTER_ATTRIBUTE_RANGE_SIZE,
    ]
    assert ok(driver.cuPointerGetAttributes(3, wanted, int(memory) + 5)) == [2, 0, 100]
    pinned = ok(driver.cuMemHostAlloc(100, 0))
    assert ok(driver.cuPointerGetAttribute(wanted[0], int(pinned))) == 1
    nothing = np.zeros(1)
    assert driver.cuPointerGetAttribute(wanted[0], nothing.ctypes.data)[0] == INVALID_VALUE
    assert ok(driver.cuPointerGetAttributes(2, wanted[:2], nothing.ctypes.data))[0] == 0


def test_registered_memory_counts_as_pinned(stream):
    data = np.zeros(1024, np.uint8)
    ok(driver.cuMemHostRegister(data.ctypes.data, 1024, 0))
    again = driver.cuMemHostRegister(data.ctypes.data + 512, 4, 0)[0]
    assert again == driver.CUresult.CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED
    device = ok(driver.cuMemAlloc(1024))
    with held(stream):
        ok(driver.cuMemcpyHtoDAsync(device, data.ctypes.data, 1024, stream))
        data[:] = 9
    ok(driver.cuStreamSynchronize(stream))
    back = np.zeros_like(data)
    ok(driver.cuMemcpyDtoH(back.ctypes.data, device, 1024))
    assert (back == 9).all()
    ok(driver.cuMemHostUnregister(data.ctypes.data))
    missing = driver.cuMemHostUnregister(data.ctypes.data)[0]
    assert missing == driver.CUresult.CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED


def test_contexts_stack_up_on_a_thread(context):
    assert int(ok(driver.cuCtxGetCurrent())) == int(context)
    primary = ok(driver.cuDevicePrimaryCtxRetain(0))
    ok(driver.cuCtxPushCurrent(primary))
    assert int(ok(driver.cuCtxGetCurrent())) == int(primary)
    assert int(ok(driver.cuCtxPopCurrent())) == int(primary)
    assert int(ok(driver.cuCtxGetCurrent())) == int(context)
    assert ok(driver.cuCtxGetDevice()) == 0 or int(ok(driver.cuCtxGetDevice())) == 0
    ok(driver.cuDevicePrimaryCtxRelease(0))


@pytest.mark.parametrize("address", [8, 0x7FFFFFFF0000, 1 << 63, (1 << 64) - 1])
def test_a_wild_host_pointer_is_an_error_and_not_a_crash(context, address):
    memory = ok(driver.cuMemAlloc(64))
    assert driver.cuMemcpyHtoD(memory, address, 64)[0] == INVALID_VALUE
    assert driver.cuMemcpyDtoH(address, memory, 64)[0] == INVALID_VALUE
    assert driver.cuMemHostRegister(address, 64, 0)[0] == INVALID_VALUE
    (code,) = driver.cuMemcpy(memory, address, 64)
    assert code == INVALID_VALUE
    assert "are not device or host memory" in message(code)
