"""Senseless launches and allocations give their documented codes, and harm nothing."""

from __future__ import annotations

import ctypes

import pytest
from cuda.bindings import driver
from helpers.driver.call_results import create_context, message, ok

from cudasync.softgpu import install

R = driver.CUresult
PTX = b""".version 6.4
.target sm_75
.address_size 64
.visible .entry two(.param .u64 two_words, .param .u32 two_value)
{
    .reg .u32 %value;
    .reg .u64 %rd_words;
    ld.param.u64 %rd_words, [two_words];
    ld.param.u32 %value, [two_value];
    st.global.u32 [%rd_words], %value;
    ret;
}
"""


@pytest.fixture
def kernel():
    install()
    ok(driver.cuInit(0))
    context = create_context()
    module = ok(driver.cuModuleLoadData(PTX))
    yield ok(driver.cuModuleGetFunction(module, b"two"))
    driver.cuCtxDestroy(context)


def launch(kernel, arguments, extra=0, stream=0):
    return driver.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, arguments, extra)[0]


def packed(block):
    """Pass `block` by CU_LAUNCH_PARAM_BUFFER_POINTER; return the address and the objects to keep
    alive."""
    data, size = ctypes.create_string_buffer(block, len(block)), ctypes.c_size_t(len(block))
    pairs = (ctypes.c_void_p * 5)(1, ctypes.addressof(data), 2, ctypes.addressof(size), 0)
    return ctypes.addressof(pairs), (data, size, pairs)


def works(kernel) -> bool:
    memory = ok(driver.cuMemAlloc(4))
    assert not int(launch(kernel, ((int(memory), 7), (ctypes.c_void_p, ctypes.c_uint))))
    back = (ctypes.c_uint * 1)()
    ok(driver.cuMemcpyDtoH(ctypes.addressof(back), memory, 4))
    return back[0] == 7


def test_a_launch_without_its_arguments_is_refused(kernel):
    assert launch(kernel, 0) == R.CUDA_ERROR_INVALID_VALUE
    assert "takes arguments: pass them" in message(R.CUDA_ERROR_INVALID_VALUE)
    assert works(kernel)


def test_a_buffer_of_too_many_arguments_is_refused(kernel):
    address, _alive = packed(bytes(64))
    assert launch(kernel, 0, address) == R.CUDA_ERROR_INVALID_VALUE
    assert "bytes of arguments, not 64" in message(R.CUDA_ERROR_INVALID_VALUE)
    assert works(kernel)


def test_a_buffer_of_too_few_arguments_leaves_the_rest_zero_and_so_a_null_pointer(kernel):
    address, _alive = packed(b"")
    assert launch(kernel, 0, address) == R.CUDA_SUCCESS
    assert driver.cuCtxSynchronize()[0] == R.CUDA_ERROR_ILLEGAL_ADDRESS


def test_words_that_are_no_launch_parameters_are_refused(kernel):
    pairs = (ctypes.c_void_p * 3)(77, 1, 0)
    assert launch(kernel, 0, ctypes.addressof(pairs)) == R.CUDA_ERROR_INVALID_VALUE
    assert works(kernel)


@pytest.mark.parametrize("handle", [1, 0xDEAD, 2**63, 2**64 - 8])
def test_what_is_no_kernel_and_no_stream_is_refused(kernel, handle):
    arguments = (0, 0), (ctypes.c_void_p, ctypes.c_uint)
    assert launch(driver.CUfunction(handle), arguments) == R.CUDA_ERROR_INVALID_HANDLE
    if handle != 1:  # 1 is CU_STREAM_LEGACY.
        stream = driver.CUstream(handle)
        assert launch(kernel, arguments, stream=stream) != R.CUDA_SUCCESS
    assert works(kernel)


def test_a_kernel_of_an_unloaded_module_is_refused(kernel):
    module = ok(driver.cuModuleLoadData(PTX))
    function = ok(driver.cuModuleGetFunction(module, b"two"))
    ok(driver.cuModuleUnload(module))
    assert launch(function, ((0, 0), (ctypes.c_void_p, ctypes.c_uint))) != R.CUDA_SUCCESS
    assert works(kernel)


@pytest.mark.parametrize("size", [2**33, 2**40, 2**62, 2**64 - 1])
def test_memory_that_is_not_there_is_refused_and_the_rest_stays(kernel, size):
    for allocate in (driver.cuMemAlloc, lambda n: driver.cuMemHostAlloc(n, 0)):
        code, *_ = allocate(size)
        assert code == R.CUDA_ERROR_OUT_OF_MEMORY
    code, *_ = driver.cuMemAllocAsync(size, 0)
    assert code == R.CUDA_ERROR_OUT_OF_MEMORY
    assert works(kernel)


def test_memory_runs_out_and_comes_back(kernel):
    held = []
    while True:
        code, memory = driver.cuMemAlloc(512 << 20)
        if code != R.CUDA_SUCCESS:
            break
        held.append(memory)
    assert code == R.CUDA_ERROR_OUT_OF_MEMORY
    assert 4 <= len(held) <= 64
    for memory in held:
        ok(driver.cuMemFree(memory))
    assert works(kernel)
    ok(driver.cuMemFree(ok(driver.cuMemAlloc(256 << 20))))


def test_memory_of_no_bytes_and_freeing_what_is_not_ours_are_refused(kernel):
    assert driver.cuMemAlloc(0)[0] == R.CUDA_ERROR_INVALID_VALUE
    for address in (1, 0xDEAD00, 2**63, 2**64 - 1):
        assert driver.cuMemFree(address)[0] == R.CUDA_ERROR_INVALID_VALUE
    memory = ok(driver.cuMemAlloc(512))
    assert driver.cuMemFree(int(memory) + 256)[0] == R.CUDA_ERROR_INVALID_VALUE
    ok(driver.cuMemFree(memory))
    assert driver.cuMemFree(memory)[0] == R.CUDA_ERROR_INVALID_VALUE
    assert works(kernel)


def test_fills_and_copies_beyond_an_end_are_refused(kernel):
    memory = ok(driver.cuMemAlloc(64))
    back = (ctypes.c_ubyte * 64)()
    here = ctypes.addressof(back)
    for (code,) in (
        driver.cuMemsetD8(memory, 1, 65),
        driver.cuMemsetD32(memory, 1, 2**62),
        driver.cuMemcpyDtoH(here, memory, 65),
        driver.cuMemcpyHtoD(int(memory) + 60, here, 8),
        driver.cuMemcpyDtoD(memory, int(memory) + 32, 2**63),
        driver.cuMemcpyDtoH(here, 0x1000, 8),
    ):
        assert code == R.CUDA_ERROR_INVALID_VALUE
    assert works(kernel)
