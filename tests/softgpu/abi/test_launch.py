"""Modules and launches through the real cuda.bindings."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from cuda.bindings import driver
from helpers.driver.call_results import create_context, message, ok

PTX = b"""
.version 6.4
.target sm_75
.address_size 64

.global .align 4 .u32 counter = 5;
.global .align 8 .u64 pointer = counter;
.const .align 4 .f32 factors[4] = {0f3F800000, 0f40000000};

.visible .entry scale(
    .param .u64 scale_data,
    .param .f32 scale_factor,
    .param .u32 scale_count
)
{
    .reg .pred %p<2>;
    .reg .f32 %f<4>;
    .reg .b32 %r<6>;
    .reg .b64 %rd<5>;
    ld.param.u64 %rd1, [scale_data];
    ld.param.f32 %f1, [scale_factor];
    ld.param.u32 %r1, [scale_count];
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %ntid.x;
    mov.u32 %r4, %tid.x;
    mad.lo.s32 %r5, %r2, %r3, %r4;
    setp.ge.u32 %p1, %r5, %r1;
    @%p1 bra DONE;
    cvta.to.global.u64 %rd2, %rd1;
    mul.wide.u32 %rd3, %r5, 4;
    add.s64 %rd4, %rd2, %rd3;
    ld.global.f32 %f2, [%rd4];
    mul.f32 %f3, %f2, %f1;
    st.global.f32 [%rd4], %f3;
DONE:
    ret;
}

.visible .entry spin(
    .param .u64 spin_flag
)
{
    .reg .pred %p<2>;
    .reg .b32 %r<2>;
    .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [spin_flag];
AGAIN:
    ld.volatile.global.u32 %r1, [%rd1];
    setp.eq.u32 %p1, %r1, 0;
    @%p1 bra AGAIN;
    ret;
}
"""
INVALID_VALUE = driver.CUresult.CUDA_ERROR_INVALID_VALUE
INVALID_HANDLE = driver.CUresult.CUDA_ERROR_INVALID_HANDLE


@pytest.fixture
def stream(context):
    return ok(driver.cuStreamCreate(1))


@pytest.fixture
def module(context):
    return ok(driver.cuModuleLoadData(PTX))


@pytest.fixture
def scale(module):
    return ok(driver.cuModuleGetFunction(module, b"scale"))


def upload(values):
    memory = ok(driver.cuMemAlloc(values.nbytes))
    ok(driver.cuMemcpyHtoD(memory, values.ctypes.data, values.nbytes))
    return memory


def download(memory, like):
    back = np.empty_like(like)
    ok(driver.cuMemcpyDtoH(back.ctypes.data, memory, back.nbytes))
    return back


def launch(function, stream, arguments, *, grid=(2, 1, 1), block=(64, 1, 1), shared=0):
    return driver.cuLaunchKernel(function, *grid, *block, shared, stream, arguments, 0)


SCALE_TYPES = (ctypes.c_void_p, ctypes.c_float, ctypes.c_uint)


def test_a_kernel_computes(scale, stream):
    values = np.arange(100, dtype=np.float32)
    memory = upload(values)
    ok(launch(scale, stream, ((int(memory), 3.0, 100), SCALE_TYPES)))
    assert driver.cuStreamQuery(stream)[0] == driver.CUresult.CUDA_ERROR_NOT_READY
    ok(driver.cuStreamSynchronize(stream))
    assert (download(memory, values) == values * 3).all()


def test_arguments_are_copied_at_the_call(scale, stream):
    """The buffers of the arguments may be gone when the kernel runs."""
    values = np.arange(100, dtype=np.float32)
    memory = upload(values)
    for _ in range(20):
        ok(launch(scale, stream, ((int(memory), 1.0, 100), SCALE_TYPES)))
    ok(driver.cuStreamSynchronize(stream))
    assert (download(memory, values) == values).all()


def test_arguments_may_come_as_one_buffer(scale, stream):
    values = np.arange(100, dtype=np.float32)
    memory = upload(values)
    block = bytearray(16)
    block[0:8] = int(memory).to_bytes(8, "little")
    block[8:12] = np.float32(2).tobytes()
    block[12:16] = (100).to_bytes(4, "little")
    data = (ctypes.c_char * 16).from_buffer(block)
    size = ctypes.c_size_t(16)
    extra = (ctypes.c_void_p * 5)(1, ctypes.addressof(data), 2, ctypes.addressof(size), 0)
    ok(driver.cuLaunchKernel(scale, 2, 1, 1, 64, 1, 1, 0, stream, 0, ctypes.addressof(extra)))
    ok(driver.cuStreamSynchronize(stream))
    assert (download(memory, values) == values * 2).all()
    both = ((memory, 2.0, 100), SCALE_TYPES), ctypes.addressof(extra)
    code = driver.cuLaunchKernel(scale, 2, 1, 1, 64, 1, 1, 0, stream, *both)[0]
    assert code == INVALID_VALUE
    assert "give kernelParams or extra, not both" in message(code)


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"grid": (0, 1, 1)}, "must not contain 0"),
        ({"block": (1, 0, 1)}, "must not contain 0"),
        ({"block": (1025, 1, 1)}, "1025 threads"),
        ({"block": (1, 1, 65)}, "larger"),
        ({"grid": (1, 65536, 1)}, "larger"),
        ({"shared": 48 * 1024 + 1}, "dynamic shared"),
    ],
)
def test_a_launch_beyond_the_bounds_is_refused(scale, stream, how, words):
    (code,) = launch(scale, stream, ((0, 1.0, 0), SCALE_TYPES), **how)
    assert code == INVALID_VALUE
    assert words in message(code)
    assert "scale" in message(code)


def test_more_shared_memory_must_be_asked_for(scale, stream):
    attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    assert driver.cuFuncSetAttribute(scale, attribute, 100 << 10)[0] == INVALID_VALUE
    ok(driver.cuFuncSetAttribute(scale, attribute, 99 << 10))
    assert ok(driver.cuFuncGetAttribute(attribute, scale)) == 99 << 10
    ok(launch(scale, stream, ((0, 1.0, 0), SCALE_TYPES), shared=99 << 10))
    ok(driver.cuStreamSynchronize(stream))


def test_module_variables_hold_their_initial_values(module):
    address, size = ok(driver.cuModuleGetGlobal(module, b"counter"))
    assert size == 4
    assert download(address, np.zeros(1, np.uint32))[0] == 5
    pointer, _ = ok(driver.cuModuleGetGlobal(module, b"pointer"))
    assert download(pointer, np.zeros(1, np.uint64))[0] == int(address)
    factors, size = ok(driver.cuModuleGetGlobal(module, b"factors"))
    assert size == 16
    assert list(download(factors, np.zeros(4, np.float32))) == [1, 2, 0, 0]
    missing = driver.cuModuleGetGlobal(module, b"nothing")[0]
    assert missing == driver.CUresult.CUDA_ERROR_NOT_FOUND


def test_a_spinning_kernel_waits_for_another_stream(module, stream):
    spin = ok(driver.cuModuleGetFunction(module, b"spin"))
    flag = upload(np.zeros(1, np.uint32))
    other = ok(driver.cuStreamCreate(1))
    ok(launch(spin, stream, ((int(flag),), (ctypes.c_void_p,)), grid=(1, 1, 1), block=(1, 1, 1)))
    event = ok(driver.cuEventCreate(0))
    ok(driver.cuEventRecord(event, stream))
    for _ in range(3):
        assert driver.cuEventQuery(event)[0] == driver.CUresult.CUDA_ERROR_NOT_READY
    ok(driver.cuMemsetD32Async(flag, 1, 1, other))
    ok(driver.cuStreamSynchronize(stream))


def test_a_write_past_the_end_is_a_fault_that_says_where(context, scale, stream):
    values = np.zeros(100, np.float32)
    memory = upload(values)
    ok(launch(scale, stream, ((int(memory), 1.0, 101), SCALE_TYPES)))
    (code,) = driver.cuStreamSynchronize(stream)
    assert code == driver.CUresult.CUDA_ERROR_ILLEGAL_ADDRESS
    text = message(code)
    for part in (
        "scale",
        "PTX line 32",
        "(1, 0, 0)",
        "(36, 0, 0)",
        "just past the end",
        "400 bytes",
    ):
        assert part in text, text
    assert driver.cuMemAlloc(4)[0] == code


def test_a_kernel_that_uses_freed_memory_is_told_so(scale, stream):
    memory = upload(np.zeros(100, np.float32))
    ok(driver.cuMemFree(memory))
    ok(launch(scale, stream, ((int(memory), 1.0, 100), SCALE_TYPES)))
    (code,) = driver.cuStreamSynchronize(stream)
    assert code == driver.CUresult.CUDA_ERROR_ILLEGAL_ADDRESS
    assert "freed at" in message(code)


def log_of(text):
    """Load a text with an error log, and return the result code and the log."""
    log = b" " * 1000
    option = driver.CUjit_option
    result = driver.cuModuleLoadDataEx(
        text,
        2,
        [option.CU_JIT_ERROR_LOG_BUFFER, option.CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES],
        [log, len(log)],
    )
    return result[0], log.partition(b"\0")[0].decode()


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (PTX.replace(b"mul.f32 %f3", b"mulberry.f32 %f3"), 33),
        (PTX.replace(b"%f2, %f1;", b"%f2, %f9;"), 33),
        (PTX.replace(b"bra DONE", b"bra GONE"), 28),
    ],
)
def test_bad_ptx_is_refused_with_its_line(context, text, line):
    code, log = log_of(text)
    assert code == driver.CUresult.CUDA_ERROR_INVALID_PTX
    assert f"line {line}; error" in log
    assert f"line {line}; error" in message(code)


@pytest.mark.parametrize("text", [PTX[: len(PTX) // 2], b"", b"hello", b".version 99.0\n"])
def test_what_is_no_ptx_is_refused(context, text):
    code, log = log_of(text)
    assert code == driver.CUresult.CUDA_ERROR_INVALID_PTX
    assert log.startswith("ptxas")


@pytest.mark.parametrize(
    ("start", "what"),
    [
        (b"\x7fELF", "machine code"),
        (b"\xed\x43\x4e\x7f", "intermediate code"),
        (b"BC\xc0\xde", "LLVM bitcode"),
        (b"!<arch>\n", "a library"),
    ],
)
def test_what_is_no_text_has_no_binary_for_this_gpu(context, start, what):
    image = start + bytes(100)
    for refused in (driver.cuModuleLoadData(image), load_library(image)):
        assert refused[0] == driver.CUresult.CUDA_ERROR_NO_BINARY_FOR_GPU
        assert f"the image is {what}" in message(refused[0])
    state = ok(driver.cuLinkCreate(0, [], []))
    kind = driver.CUjitInputType.CU_JIT_INPUT_OBJECT
    refused = driver.cuLinkAddData(state, kind, image, len(image), b"it", 0, [], [])
    assert refused[0] == driver.CUresult.CUDA_ERROR_NO_BINARY_FOR_GPU
    assert f"it is {what}" in message(refused[0])
    ok(driver.cuLinkDestroy(state))


def load_library(image):
    return driver.cuLibraryLoadData(image, [], [], 0, [], [], 0)


def test_a_module_ends_with_its_functions_and_variables(module, scale, stream):
    address, _ = ok(driver.cuModuleGetGlobal(module, b"counter"))
    ok(driver.cuModuleUnload(module))
    assert driver.cuModuleUnload(module)[0] == INVALID_HANDLE
    assert launch(scale, stream, ((0, 1.0, 0), SCALE_TYPES))[0] == INVALID_HANDLE
    assert driver.cuMemsetD8(address, 0, 1)[0] == INVALID_VALUE


def test_a_library_serves_every_context(context):
    library = ok(driver.cuLibraryLoadData(PTX, [], [], 0, [], [], 0))
    kernel = ok(driver.cuLibraryGetKernel(library, b"scale"))
    values = np.arange(8, dtype=np.float32)
    other = create_context()
    try:
        for _ in range(2):
            memory = upload(values)
            stream = ok(driver.cuStreamCreate(1))
            function = driver.CUfunction(int(kernel))
            ok(launch(function, stream, ((int(memory), 2.0, 8), SCALE_TYPES)))
            ok(driver.cuStreamSynchronize(stream))
            assert (download(memory, values) == values * 2).all()
            ok(driver.cuCtxPopCurrent())
    finally:
        ok(driver.cuCtxPushCurrent(context))
        driver.cuCtxDestroy(other)
    module = ok(driver.cuLibraryGetModule(library))
    assert driver.cuModuleUnload(module)[0] == driver.CUresult.CUDA_ERROR_NOT_PERMITTED
    ok(driver.cuLibraryUnload(library))
    assert driver.cuLibraryGetKernel(library, b"scale")[0] == INVALID_HANDLE
    assert driver.cuModuleUnload(module)[0] == INVALID_HANDLE


def test_occupancy_is_bounded_by_threads_and_shared_memory(scale):
    ask = driver.cuOccupancyMaxActiveBlocksPerMultiprocessor
    assert ok(ask(scale, 1024, 0)) == 2
    assert ok(ask(scale, 32, 0)) == 32
    assert ok(ask(scale, 32, 48 << 10)) == 2
    assert ok(ask(scale, 2000, 0)) == 0
