"""A module with unsupported kernels loads: those kernels are refused, the others run."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from cuda.bindings import driver
from helpers.driver.call_results import message, ok

import cudasync as cs
from cudasync.errors import PtxError
from cudasync.ptx import parse
from cudasync.softgpu import jit, oracle

R = driver.CUresult
HEAD = """\
.version 8.6
.target sm_100a
.address_size 64
.visible .global .u32 chosen = 41;
"""
GOOD = """\
.visible .entry good(.param .u64 result)
{
    .reg .u32 %word;
    .reg .u64 %rd_result;
    ld.param.u64 %rd_result, [result];
    ld.global.u32 %word, [chosen];
    add.u32 %word, %word, 1;
    st.global.u32 [%rd_result], %word;
    ret;
}
"""
FUNCTION = """\
.visible .func fences()
{
    wgmma.fence.sync.aligned;
    ret;
}
"""
BAD = """\
.visible .entry bad(.param .u64 result)
{
    .reg .b32 %r<2>;
    mapa.shared::cluster.u32 %r0, %r1, 1;
    ret;
}
"""
CALLS = """\
.visible .entry calls(.param .u64 result)
{
    call fences;
    ret;
}
"""
LAST = GOOD.replace("good", "last").replace(", 1;", ", 2;")
TEXT = HEAD + FUNCTION + GOOD + BAD + CALLS + LAST
NAMES = ["good", "bad", "calls", "last"]
# The missing instruction of each kernel.
MISSING = {"bad": "mapa.shared::cluster.u32", "calls": "wgmma.fence.sync.aligned"}
WRONG = GOOD.replace("good", "wrong").replace("ld.global.u32", "ld.global.nonsense.u32")


def line_of(name):
    return next(n for n, line in enumerate(TEXT.splitlines(), 1) if MISSING[name] in line)


def assert_refused(answer, name):
    """The answer must be NOT_SUPPORTED, and name the missing instruction with its line."""
    assert answer[0] == R.CUDA_ERROR_NOT_SUPPORTED
    said = message(R.CUDA_ERROR_NOT_SUPPORTED)
    assert f"line {line_of(name)};" in said
    assert f"{MISSING[name]} is not supported" in said


def launched(function, expected):
    out = ok(driver.cuMemAlloc(4))
    found = launch(function, out)
    assert found[0] == R.CUDA_SUCCESS
    back = np.zeros(1, np.uint32)
    ok(driver.cuMemcpyDtoH(back.ctypes.data, out, 4))
    assert back[0] == expected


def launch(function, out):
    return driver.cuLaunchKernel(
        function, 1, 1, 1, 1, 1, 1, 0, 0, ((int(out),), (ctypes.c_uint64,)), 0
    )


@pytest.fixture
def module(context):
    return ok(driver.cuModuleLoadData(TEXT.encode()))


@pytest.fixture
def library(context):
    return ok(driver.cuLibraryLoadData(TEXT.encode(), [], [], 0, [], [], 0))


@pytest.mark.parametrize("room", [jit, oracle], ids=["jit", "oracle"])
@pytest.mark.parametrize("record", [False, True])
def test_each_lowering_sorts_them_out(room, record):
    compiled = room.compile_module(parse(TEXT), record=record)
    assert set(compiled.kernels) == {"good", "last"}
    assert {name: each.line for name, each in compiled.refused.items()} == {
        name: line_of(name) for name in MISSING
    }


def test_the_others_run(module):
    launched(ok(driver.cuModuleGetFunction(module, b"good")), 42)
    launched(ok(driver.cuModuleGetFunction(module, b"last")), 43)


@pytest.mark.parametrize("name", MISSING)
def test_a_kernel_that_can_not_run_is_refused_when_it_is_asked_for(module, name):
    assert_refused(driver.cuModuleGetFunction(module, name.encode()), name)
    assert driver.cuModuleGetFunction(module, b"none")[0] == R.CUDA_ERROR_NOT_FOUND


def test_the_message_about_a_missing_kernel_names_those_that_there_are(module, library):
    known = ", ".join(sorted(NAMES))
    assert driver.cuModuleGetFunction(module, b"none")[0] == R.CUDA_ERROR_NOT_FOUND
    assert f"the module has no kernel 'none': it has {known}" in message(R.CUDA_ERROR_NOT_FOUND)
    assert driver.cuLibraryGetKernel(library, b"none")[0] == R.CUDA_ERROR_NOT_FOUND
    assert f"the library has no kernel 'none': it has {known}" in message(R.CUDA_ERROR_NOT_FOUND)


def test_a_long_list_of_kernels_is_cut(context):
    entries = "".join(f".visible .entry k{n:02}() {{ ret; }}\n" for n in range(10))
    text = f".version 7.0\n.target sm_75\n.address_size 64\n{entries}"
    module = ok(driver.cuModuleLoadData(text.encode() + b"\0"))
    assert driver.cuModuleGetFunction(module, b"k")[0] == R.CUDA_ERROR_NOT_FOUND
    assert message(R.CUDA_ERROR_NOT_FOUND).endswith(
        "k00, k01, k02, k03, k04, k05, k06, k07 and 2 more"
    )
    ok(driver.cuModuleUnload(module))


def test_variables_are_there(module):
    address, size = ok(driver.cuModuleGetGlobal(module, b"chosen"))
    assert size == 4
    ok(driver.cuMemsetD32(address, 9, 1))
    launched(ok(driver.cuModuleGetFunction(module, b"good")), 10)


def test_they_are_counted_and_named_and_refused_when_used(module):
    count = ok(driver.cuModuleGetFunctionCount(module))
    assert count == len(NAMES)
    functions = ok(driver.cuModuleEnumerateFunctions(count, module))
    assert [ok(driver.cuFuncGetName(each)).decode() for each in functions] == NAMES
    assert {int(ok(driver.cuFuncGetModule(each))) for each in functions} == {int(module)}
    by_name = dict(zip(NAMES, functions, strict=True))
    attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES
    out = ok(driver.cuMemAlloc(4))
    for name in MISSING:
        assert_refused(launch(by_name[name], out), name)
        assert_refused(driver.cuFuncGetAttribute(attribute, by_name[name]), name)
        assert_refused(driver.cuFuncLoad(by_name[name]), name)
        assert_refused(driver.cuFuncGetParamInfo(by_name[name], 0), name)
    # None of these refusals was a fault.
    launched(by_name["good"], 42)
    ok(driver.cuModuleUnload(module))
    assert driver.cuFuncGetName(by_name["bad"])[0] == R.CUDA_ERROR_INVALID_VALUE


def test_a_graph_refuses_them_too(module):
    functions = ok(driver.cuModuleEnumerateFunctions(len(NAMES), module))
    graph = ok(driver.cuGraphCreate(0))
    params = driver.CUDA_KERNEL_NODE_PARAMS()
    params.func = functions[NAMES.index("bad")]
    params.gridDimX = params.gridDimY = params.gridDimZ = 1
    params.blockDimX = params.blockDimY = params.blockDimZ = 1
    params.kernelParams = ((0,), (ctypes.c_uint64,))
    assert_refused(driver.cuGraphAddKernelNode(graph, None, 0, params), "bad")


def test_libraries_do_the_same(library):
    for name in MISSING:
        assert_refused(driver.cuLibraryGetKernel(library, name.encode()), name)
    assert driver.cuLibraryGetKernel(library, b"none")[0] == R.CUDA_ERROR_NOT_FOUND
    kernels = ok(
        driver.cuLibraryEnumerateKernels(ok(driver.cuLibraryGetKernelCount(library)), library)
    )
    assert [ok(driver.cuKernelGetName(each)).decode() for each in kernels] == NAMES
    by_name = dict(zip(NAMES, kernels, strict=True))
    out = ok(driver.cuMemAlloc(4))
    for name in MISSING:
        assert_refused(driver.cuKernelGetFunction(by_name[name]), name)
        assert_refused(launch(driver.CUfunction(int(by_name[name])), out), name)
    launched(ok(driver.cuKernelGetFunction(by_name["last"])), 43)
    assert ok(driver.cuLibraryGetGlobal(library, b"chosen"))[1] == 4
    ok(driver.cuLibraryUnload(library))


def test_linked_modules_do_the_same(context):
    state = ok(driver.cuLinkCreate(0, [], []))
    kind = driver.CUjitInputType.CU_JIT_INPUT_PTX
    whole = HEAD + ".extern .func fences();\n" + GOOD + CALLS
    apart = HEAD.replace(".visible .global .u32 chosen = 41;\n", "") + FUNCTION
    for text in (whole, apart):
        data = text.encode() + b"\0"
        ok(driver.cuLinkAddData(state, kind, data, len(data), b"part", 0, [], []))
    image, _ = ok(driver.cuLinkComplete(state))
    module = ok(driver.cuModuleLoadData(image))
    ok(driver.cuLinkDestroy(state))
    launched(ok(driver.cuModuleGetFunction(module, b"good")), 42)
    assert driver.cuModuleGetFunction(module, b"calls")[0] == R.CUDA_ERROR_NOT_SUPPORTED
    assert "wgmma.fence.sync.aligned is not supported" in message(R.CUDA_ERROR_NOT_SUPPORTED)


@pytest.mark.parametrize("text", [HEAD + BAD + WRONG, HEAD + WRONG + BAD, HEAD + BAD + "{"])
def test_what_is_no_ptx_is_refused_when_it_is_loaded(context, text):
    assert driver.cuModuleLoadData(text.encode())[0] == R.CUDA_ERROR_INVALID_PTX
    answer = driver.cuLibraryLoadData(text.encode(), [], [], 0, [], [], 0)
    assert answer[0] == R.CUDA_ERROR_INVALID_PTX


def test_a_kernel_s_refusal_is_a_ptx_error_with_the_place():
    module = cs.Module.from_ptx(TEXT, file="several.ptx")
    assert list(module.kernel_names) == NAMES
    assert module.kernel("good").name == "good"
    for name, missing in MISSING.items():
        with pytest.raises(PtxError) as caught:
            module.kernel(name)
        refusal = caught.value
        assert refusal.message.startswith(f"{missing} is not supported: the software GPU has no ")
        assert (refusal.file, refusal.line) == ("several.ptx", line_of(name))
        assert refusal.instruction == TEXT.splitlines()[line_of(name) - 1].strip()


@pytest.mark.parametrize(
    ("declared", "statement"),
    [
        (
            ".global .texref image;",
            "tex.2dms.v4.f32.s32 {%f, %f, %f, %f}, [image, {%word, %word, %word, %word}];",
        ),
        (".global .surfref image;", "sust.p.1d.b32.trap [image, {%word}], {%word};"),
    ],
)
def test_references_to_textures_cost_the_kernels_that_use_them(context, declared, statement):
    """nvcc before CUDA 12 wrote such references."""
    text = TEXT[: TEXT.index(".visible .func")] + declared + "\n" + GOOD
    text += f".visible .entry bad() {{ .reg .f32 %f; .reg .b32 %word; {statement} ret; }}\n"
    module = ok(driver.cuModuleLoadData(text.encode()))
    ok(driver.cuModuleGetFunction(module, b"good"))
    assert driver.cuModuleGetFunction(module, b"bad")[0] == R.CUDA_ERROR_NOT_SUPPORTED
