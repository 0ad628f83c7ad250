"""Linking of PTX: the result runs, and texts that do not fit together are refused by name.

The tests link texts as the driver's calls do; most of the rules are shown on texts alone.
"""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from cuda.bindings import driver
from helpers.driver.call_results import ok

from cudasync.errors import PtxError
from cudasync.ptx import parse
from cudasync.ptx.parsing.lexer import split
from cudasync.softgpu.core.linking import LinkError, link
from cudasync.softgpu.core.linking.device_runtime import RUNTIME_PTX
from cudasync.softgpu.core.linking.ptx_statements import statements

HEADER = ".version 7.0\n.target sm_70\n.address_size 64\n"
KERNEL = (
    HEADER
    + """
.extern .func (.param .b32 result) twice(.param .b32 value);
.extern .global .u32 offset;
.global .u32 own = 7;
.visible .entry use(.param .u64 out)
{
    .reg .b64 %rd_out;
    .reg .b32 %r<3>;
    ld.param.u64 %rd_out, [out];
    ld.global.u32 %r0, [own];
    { .param .b32 value; .param .b32 result;
    st.param.b32 [value], %r0;
    call.uni (result), twice, (value);
    ld.param.b32 %r1, [result]; }
    ld.global.u32 %r2, [offset];
    add.u32 %r1, %r1, %r2;
    st.global.u32 [%rd_out], %r1;
    ret;
}
"""
)
LIBRARY = (
    HEADER.replace("7.0", "7.8").replace("70", "80")
    + """
.visible .global .u32 offset = 100;
.global .u32 own = 3;
.visible .func (.param .b32 result) twice(.param .b32 value)
{
    .reg .b32 %r<2>;
    ld.param.b32 %r0, [value];
    ld.global.u32 %r1, [own];
    mad.lo.u32 %r0, %r0, 2, %r1;
    st.param.b32 [result], %r0;
    ret;
}
"""
)


def linked(*texts, runtime=False):
    named = [(f"text {n}", text.encode()) for n, text in enumerate(texts)]
    return link(named, runtime=runtime).decode()


def add(state, text, name=b"text", kind=driver.CUjitInputType.CU_JIT_INPUT_PTX):
    data = text.encode() if isinstance(text, str) else text
    return driver.cuLinkAddData(state, kind, data, len(data), name, 0, [], [])[0]


@pytest.mark.parametrize("texts", [(KERNEL, LIBRARY), (LIBRARY, KERNEL)])
def test_a_kernel_calls_what_another_module_defines(context, texts):
    state = ok(driver.cuLinkCreate(0, [], []))
    for text in texts:
        assert add(state, text) == 0
    image, size = ok(driver.cuLinkComplete(state))
    module = ok(driver.cuModuleLoadData(ctypes.string_at(image, size)))
    ok(driver.cuLinkDestroy(state))
    kernel = ok(driver.cuModuleGetFunction(module, b"use"))
    out = ok(driver.cuMemAlloc(4))
    ok(driver.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, 0, ((out,), (None,)), 0))
    host = np.zeros(1, np.uint32)
    ok(driver.cuMemcpyDtoH(host, out, 4))
    assert host[0] == 2 * 7 + 3 + 100


def test_declarations_without_semicolons_are_statements_of_their_own():
    """Compilers before PTX ISA 3 wrote declarations without semicolons."""
    declared = HEADER + ".visible .func f\n.extern .func g(.param .b32 a)\n.global .u32 own = 1;\n"
    defined = (
        HEADER + ".visible .func g(.param .b32 a) { ret; }\n.global .u32 own = 2;\n.visible .func f"
    )
    text = linked(
        declared + ".visible .entry k() { call f; ret; }\n",
        defined,
        HEADER + ".visible .func f { ret; }",
    )
    assert [each.name for each in parse(text).kernels] == ["k"]
    assert not any(each.is_declaration for each in parse(text).functions)
    assert len(parse(text).variables) == 2


def test_the_newest_header_counts_and_there_is_one():
    text = linked(KERNEL, LIBRARY)
    assert text.count(".version") == text.count(".target") == 1
    assert (parse(text).version, parse(text).target) == ((7, 8), "sm_80")


def test_what_two_modules_keep_to_themselves_stays_apart():
    module = parse(linked(KERNEL, LIBRARY))
    own = [v for v in module.variables if v.name.startswith("own")]
    assert sorted(v.initial[0].value for v in own) == [3, 7]


def test_a_linked_text_can_be_linked_again():
    again = linked(linked(KERNEL, LIBRARY), HEADER + ".global .u32 own = 9;")
    assert len(parse(again).variables) == 4


@pytest.mark.parametrize(
    ("first", "second", "left"),
    [
        (".weak .global .u32 x = 1;", ".visible .global .u32 x = 2;", 2),
        (".visible .global .u32 x = 1;", ".weak .global .u32 x = 2;", 1),
        (".weak .global .u32 x = 1;", ".weak .global .u32 x = 2;", 1),
        (".common .global .u32 x;", ".visible .global .u32 x = 2;", 2),
        (".extern .global .u32 x;", ".visible .global .u32 x = 2;", 2),
        (".weak .global .align 8 .u32 x = 1;", ".weak .const .u32 y = 3;", 1),
    ],
)
def test_weak_and_tentative_definitions_give_way(first, second, left):
    module = parse(linked(HEADER + first, HEADER + second))
    assert next(v for v in module.variables if v.name == "x").initial[0].value == left


def test_weak_functions_are_kept_once():
    weak = HEADER + ".weak .func f() { ret; }\n.visible .entry "
    module = parse(linked(weak + "g() { ret; }", weak + "h() { ret; }"))
    assert [f.name for f in module.functions] == ["f", "g", "h"]


def test_two_strong_definitions_are_refused_with_both_names():
    text = HEADER + ".visible .func f() { ret; }"
    with pytest.raises(LinkError, match=r"Multiple definition of 'f' in 'text 1', .* in 'text 0'"):
        linked(text, text)


def test_what_nobody_defines_is_refused_by_name():
    with pytest.raises(LinkError, match="Undefined reference to 'twice' in 'text 0'"):
        linked(KERNEL)


def test_dynamic_shared_memory_and_the_driver_s_own_functions_need_no_definition():
    text = HEADER + (
        ".extern .shared .align 16 .b8 room[];\n"
        ".extern .func (.param .b32 r) vprintf(.param .b64 a, .param .b64 b);\n"
    )
    assert len(parse(linked(text, text)).variables) == 1


def test_lines_and_files_of_the_source_are_those_of_their_module():
    def text(name, line):
        return f'{HEADER}.file 1 "{name}.cu"\n.func {name}() {{ .loc 1 {line} 0\n ret; }}\n'

    module = parse(linked(text("f", 11), text("g", 22)))
    found = {f.name: (f.locations[0].file, f.locations[0].line) for f in module.functions}
    assert found == {"f": ("f.cu", 11), "g": ("g.cu", 22)}


def test_debug_sections_are_left_out():
    text = HEADER + ".func f() { ret; }\n.section .debug_str { .b8 1, 2; }\n"
    assert ".section" not in linked(text, HEADER)


def test_what_is_no_ptx_is_refused_with_its_line():
    with pytest.raises(PtxError, match="text 0:4:1"):
        linked(HEADER + ".nonsense", HEADER)


def test_the_log_says_what_is_missing(context):
    log = bytearray(512)
    options = driver.CUjit_option
    numbers = [
        options.CU_JIT_ERROR_LOG_BUFFER,
        options.CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
    ]
    state = ok(driver.cuLinkCreate(2, numbers, [log, len(log)]))
    assert add(state, KERNEL, b"mine.ptx") == 0
    assert driver.cuLinkComplete(state)[0] == driver.CUresult.CUDA_ERROR_UNKNOWN
    assert b"Undefined reference to 'twice' in 'mine.ptx'" in log
    ok(driver.cuLinkDestroy(state))


def test_machine_code_is_refused(context):
    state = ok(driver.cuLinkCreate(0, [], []))
    cubin = driver.CUjitInputType.CU_JIT_INPUT_CUBIN
    expected = driver.CUresult.CUDA_ERROR_NO_BINARY_FOR_GPU
    assert add(state, b"\x7fELF" + bytes(64), kind=cubin) == expected
    assert add(state, b"!<arch>\nsomething else", kind=driver.CUjitInputType(4)) == expected
    assert driver.cuLinkComplete(state)[0] == driver.CUresult.CUDA_ERROR_INVALID_VALUE
    ok(driver.cuLinkDestroy(state))


GRID = (
    HEADER
    + """
.extern .func (.param .b64 handle) cudaCGGetIntrinsicHandle(.param .b32 scope);
.extern .func (.param .b32 status) cudaCGSynchronize(.param .b64 handle, .param .b32 flags);
.visible .entry meet(.param .u64 cells)
{
    .reg .pred %is_other;
    .reg .b32 %r<3>;
    .reg .b64 %rd<4>;
    ld.param.u64 %rd0, [cells];
    mov.u32 %r0, %ctaid.x;
    mul.wide.u32 %rd1, %r0, 4;
    add.u64 %rd1, %rd0, %rd1;
    st.volatile.global.u32 [%rd1], %r0;
    { .param .b32 scope; .param .b64 handle;
    st.param.b32 [scope], 1;
    call.uni (handle), cudaCGGetIntrinsicHandle, (scope);
    ld.param.b64 %rd2, [handle]; }
    { .param .b64 handle; .param .b32 flags; .param .b32 status;
    st.param.b64 [handle], %rd2;
    st.param.b32 [flags], 0;
    call.uni (status), cudaCGSynchronize, (handle, flags);
    ld.param.b32 %r1, [status]; }
    mov.u32 %r2, %nctaid.x;
    sub.u32 %r2, %r2, %r0;
    sub.u32 %r2, %r2, 1;
    mul.wide.u32 %rd3, %r2, 4;
    add.u64 %rd3, %rd0, %rd3;
    ld.volatile.global.u32 %r2, [%rd3];
    add.u32 %r2, %r2, %r1;
    add.u64 %rd1, %rd1, 64;
    st.global.u32 [%rd1], %r2;
    ret;
}
"""
)


def meet(context, launch):
    """What each block of a grid saw in the others' cells after the barrier, and the result code."""
    state = ok(driver.cuLinkCreate(0, [], []))
    assert add(state, GRID) == 0
    archive = b"!<arch>\n//  cuda_device_runtime.o/\n"
    assert add(state, archive, b"libcudadevrt.a", driver.CUjitInputType(4)) == 0
    image, size = ok(driver.cuLinkComplete(state))
    module = ok(driver.cuModuleLoadData(ctypes.string_at(image, size)))
    kernel = ok(driver.cuModuleGetFunction(module, b"meet"))
    cells = ok(driver.cuMemAlloc(128))
    arguments = ((cells,), (None,))
    ok(launch(kernel, 16, 1, 1, 32, 1, 1, 0, 0, arguments))
    host = np.zeros(32, np.uint32)
    code = driver.cuMemcpyDtoH(host, cells, 128)[0]
    ok(driver.cuLinkDestroy(state))
    return host[16:].tolist(), code


def test_a_grid_meets_through_the_run_time_library(context):
    seen, code = meet(context, driver.cuLaunchCooperativeKernel)
    assert (seen, code) == ([*reversed(range(16))], 0)


def test_a_grid_that_was_not_launched_to_meet_is_stopped(context):
    _, code = meet(context, lambda *arguments: driver.cuLaunchKernel(*arguments, 0))
    assert code == driver.CUresult.CUDA_ERROR_LAUNCH_FAILED


def test_without_the_library_a_grid_s_barrier_is_undefined():
    with pytest.raises(LinkError, match="cudaCGSynchronize"):
        linked(GRID)
    assert b"cudaCGSynchronize" in link([("grid", GRID.encode())], runtime=True)


def test_the_statements_of_a_text_cover_it():
    for text in (KERNEL, LIBRARY, RUNTIME_PTX):
        words = split(text, "text").words
        found = list(statements(words))
        assert [s.start for s in found][1:] == [s.end for s in found][:-1]
        assert words[found[-1].end :] == [""] * (len(words) - found[-1].end)
