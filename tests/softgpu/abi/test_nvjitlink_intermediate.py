"""NVIDIA's own nvJitLink links intermediate code (LTO IR), and the resulting PTX runs here."""

from __future__ import annotations

import ctypes

import pytest
from cuda.bindings import driver, nvjitlink, nvrtc
from helpers.driver.call_results import ok
from helpers.repository.nvidia_libraries import has_library

from cudasync.softgpu.abi.other_libraries import nvjitlink_library

pytestmark = pytest.mark.skipif(
    not (has_library("nvJitLink") and has_library("nvrtc")),
    reason="nvJitLink or NVRTC is not installed",
)

Kind = nvjitlink.InputType
KERNEL = b"""
extern __device__ int twice(int);
extern "C" __global__ void k(int *x) { x[threadIdx.x] = twice(x[threadIdx.x]) + 1; }
"""
TWICE = b"__device__ int twice(int a) { return a * 2; }"
TWICE_PTX = b""".version 8.0
.target sm_80
.address_size 64
.visible .func (.param .b32 result) _Z5twicei(.param .b32 a)
{
    .reg .b32 %r;
    ld.param.b32 %r, [a];
    shl.b32 %r, %r, 1;
    st.param.b32 [result], %r;
    ret;
}
"""


def intermediate(source):
    _, program = nvrtc.nvrtcCreateProgram(source, b"source.cu", 0, [], [])
    options = [b"-dlto", b"-arch=sm_80", b"-rdc=true"]
    assert not int(nvrtc.nvrtcCompileProgram(program, len(options), options)[0])
    code = bytearray(nvrtc.nvrtcGetLTOIRSize(program)[1])
    assert not int(nvrtc.nvrtcGetLTOIR(program, code)[0])
    nvrtc.nvrtcDestroyProgram(program)
    return bytes(code)


def linked(*inputs, options=("-arch=sm_80", "-lto")):
    handle = nvjitlink.create(len(options), list(options))
    try:
        for kind, data in inputs:
            nvjitlink.add_data(handle, kind, data, len(data), "input")
        nvjitlink.complete(handle)
        image = bytearray(nvjitlink.get_linked_cubin_size(handle))
        nvjitlink.get_linked_cubin(handle, image)
        return bytes(image)
    except nvjitlink.nvJitLinkError as error:
        log = bytearray(nvjitlink.get_error_log_size(handle))
        nvjitlink.get_error_log(handle, log)
        raise AssertionError(f"{error}: {log.decode()}") from error
    finally:
        nvjitlink.destroy(handle)


def run(image):
    function = ok(driver.cuModuleGetFunction(ok(driver.cuModuleLoadData(image)), b"k"))
    memory = ok(driver.cuMemAlloc(16))
    values = (ctypes.c_int * 4)(1, 2, 3, 4)
    ok(driver.cuMemcpyHtoD(memory, ctypes.addressof(values), 16))
    ok(driver.cuLaunchKernel(function, 1, 1, 1, 4, 1, 1, 0, 0, ((memory,), (None,)), 0))
    ok(driver.cuMemcpyDtoH(ctypes.addressof(values), memory, 16))
    return list(values)


@pytest.mark.parametrize("kind", [Kind.LTOIR, Kind.ANY])
def test_a_kernel_and_its_function_are_linked_and_run(context, kind):
    image = linked((kind, intermediate(KERNEL)), (kind, intermediate(TWICE)))
    assert run(image) == [3, 5, 7, 9]
    # The link optimises: the function is inlined and no longer exists.
    assert b"twice" not in image


def test_intermediate_code_is_linked_with_ptx(context):
    assert run(linked((Kind.LTOIR, intermediate(KERNEL)), (Kind.PTX, TWICE_PTX))) == [3, 5, 7, 9]


KERNEL_PTX = b""".version 8.0
.target sm_80
.address_size 64
.extern .func (.param .b32 result) _Z5twicei(.param .b32 a);
.visible .entry k(.param .u64 x)
{
    .reg .b32 %r<3>;
    .reg .b64 %rd<3>;
    ld.param.u64 %rd1, [x];
    mov.u32 %r1, %tid.x;
    mad.wide.u32 %rd1, %r1, 4, %rd1;
    ld.global.b32 %r2, [%rd1];
    .param .b32 given;
    .param .b32 back;
    st.param.b32 [given], %r2;
    call (back), _Z5twicei, (given);
    ld.param.b32 %r2, [back];
    add.s32 %r2, %r2, 1;
    st.global.b32 [%rd1], %r2;
    ret;
}
"""


def test_a_function_that_only_ptx_calls_is_kept(context):
    image = linked((Kind.PTX, KERNEL_PTX), (Kind.LTOIR, intermediate(TWICE)))
    assert run(image) == [3, 5, 7, 9]
    module = ok(driver.cuModuleLoadData(image))
    assert ok(driver.cuModuleGetFunctionCount(module)) == 1


def test_what_nothing_defines_is_told(context):
    with pytest.raises(AssertionError, match=r"ERROR_FINALIZE.*_Z5twicei"):
        linked((Kind.LTOIR, intermediate(KERNEL)))


def test_a_refusal_of_nvidias_library_is_its_own(context):
    code = intermediate(TWICE)
    with pytest.raises(AssertionError, match=r"ERROR_NVVM_COMPILE.*multiply defined"):
        linked((Kind.LTOIR, code), (Kind.LTOIR, code))
    with pytest.raises(AssertionError, match="does not match"):
        linked((Kind.LTOIR, b"nonsense"))
    with pytest.raises((AssertionError, ValueError), match=r"-lto|18"):
        linked((Kind.LTOIR, code), options=("-arch=sm_80",))


def test_the_linked_code_is_given_as_intermediate_code_too(context):
    if not hasattr(nvjitlink, "get_linked_ltoir"):
        pytest.skip("cuda.bindings is older than nvJitLinkGetLinkedLTOIR")
    handle = nvjitlink.create(2, ["-arch=sm_80", "-lto"])
    for code in map(intermediate, (KERNEL, TWICE)):
        nvjitlink.add_data(handle, Kind.LTOIR, code, len(code), "input")
    nvjitlink.complete(handle)
    code = bytearray(nvjitlink.get_linked_ltoir_size(handle))
    nvjitlink.get_linked_ltoir(handle, code)
    nvjitlink.destroy(handle)
    assert run(linked((Kind.LTOIR, bytes(code)))) == [3, 5, 7, 9]


def test_without_nvidias_library_it_is_refused_by_name(context, monkeypatch):
    monkeypatch.setattr(nvjitlink_library, "found", lambda: None)
    code = intermediate(TWICE)
    with pytest.raises(AssertionError, match=r"ERROR_UNRECOGNIZED_INPUT.*nvidia-nvjitlink"):
        linked((Kind.LTOIR, code))
