"""The system's shared memory lies apart from a kernel's static and a launch's dynamic memory."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest
from cuda.bindings import driver
from helpers.driver.call_results import ok
from helpers.lowering import bare_launch

from cudasync.ptx import parse
from cudasync.softgpu import jit, oracle
from cudasync.softgpu.interface.launch import FaultKind, OutcomeKind
from cudasync.softgpu.interface.reserved_shared_memory import RESERVED_BYTES

pytestmark = pytest.mark.sampled(3)

CORPUS = Path(__file__).parents[1] / "corpus"
LOWERINGS = {"jit": jit, "oracle": oracle}
BLOCKS, THREADS = 2, 256
COUNT = BLOCKS * THREADS


@cache
def compiled(room, target, memcheck):
    text = (CORPUS / f"tiles_sm{target}.ptx").read_text()
    return LOWERINGS[room].compile_module(parse(text), memcheck=memcheck)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("size", [64, 128])
@pytest.mark.parametrize(
    ("room", "target", "memcheck"),
    [("jit", target, True) for target in (75, 80, 90, 120)]
    + [("jit", 80, False), ("oracle", 80, True), ("oracle", 120, False)],
)
def test_tiles_of_several_warps_leave_shared_memory_alone(room, target, memcheck, size):
    values = np.arange(1, COUNT + 1, dtype=np.int32)
    results = {name: np.zeros(COUNT, np.int32) for name in ("sums", "scans", "votes", "echo")}
    memory = [bare_launch.aligned(each) for each in (values, *results.values())]
    outcome = bare_launch.run(
        compiled(room, target, memcheck),
        f"tiles{size}",
        grid=(BLOCKS,),
        block=(THREADS,),
        shared_bytes=4 * THREADS,
        args=memory,
        budget=2**40,
    )
    assert outcome.kind is OutcomeKind.DONE, outcome.fault
    of_tile = values.reshape(-1, size)
    _, sums, scans, votes, echo = (each.reshape(-1, size) for each in memory)
    assert (sums == of_tile.sum(1, keepdims=True) + 2 * size).all()
    assert (scans == of_tile.cumsum(1)).all()
    expected = (of_tile % 100 == 0).any(1) + 2 * (of_tile > 64).all(1)
    assert (votes == expected[:, None]).all()
    assert (echo == of_tile - ~of_tile).all()


def kernel(body, *, declared=16, align=4, before=""):
    """A kernel with `declared` bytes of shared memory that stores words 0 to 3 of `result`."""
    return f"""
.version 8.1
.target sm_90
.address_size 64
.extern .shared .align 16 .b8 added[];
{before}
.visible .entry test(.param .u64 result)
{{
    .shared .align {align} .b8 declared[{declared}];
    .reg .u32 %r<8>;
    .reg .u64 %rd<4>;
    ld.param.u64 %rd0, [result];
    mov.u32 %r0, declared;
    mov.u32 %r1, added;
    mov.u32 %r2, 0;
    {body}
    st.global.v4.u32 [%rd0], {{%r0, %r1, %r2, %r3}};
    ret;
}}
"""


def words(room, text, shared_bytes=0):
    """The four words, the kernel's static bytes, and the fault, if any."""
    module = LOWERINGS[room].compile_module(parse(text))
    result = bare_launch.aligned(np.zeros(4, np.uint32))
    outcome = bare_launch.run(
        module, "test", grid=(1,), block=(1,), shared_bytes=shared_bytes, args=[result]
    )
    return result.tolist(), module.kernels["test"].static_shared_bytes, outcome.fault


ASKS = "mov.b32 %r3, %reserved_smem_offset_1;"
ASKING_FUNCTION = """
.func (.param .b32 place) asks()
{
    .reg .b32 %place;
    mov.b32 %place, %reserved_smem_offset_begin;
    st.param.b32 [place], %place;
    ret;
}
"""
CALLS = "{ .param .b32 back; call (back), asks, (); ld.param.b32 %r3, [back]; }"


@pytest.mark.parametrize("room", LOWERINGS)
@pytest.mark.parametrize(("align", "declared"), [(4, 20), (128, 256), (2048, 64), (4, 48 << 10)])
@pytest.mark.parametrize(("body", "before"), [(ASKS, ""), (CALLS, ASKING_FUNCTION)])
def test_variables_lie_behind_the_region_as_aligned_as_without(room, align, declared, body, before):
    options = {"declared": declared, "align": align}
    (static, dynamic, *_), size, fault = words(room, kernel("mov.b32 %r3, 0;", **options), 64)
    assert fault is None
    text = kernel(body, before=before, **options)
    (static_now, dynamic_now, *_), size_now, fault = words(room, text, 64)
    assert fault is None
    moved = static_now - static
    assert moved >= RESERVED_BYTES
    assert moved % align == 0
    assert dynamic_now - dynamic == moved
    # The size that CUDA reports for the kernel excludes the system's part.
    assert size_now == size


@pytest.mark.parametrize("room", LOWERINGS)
def test_the_last_dynamic_byte_is_there_and_the_next_is_not(room):
    at = "add.u32 %r4, %r1, {}; ld.shared.u8 %r2, [%r4];"
    for offset, is_right in ((4095, True), (4096, False)):
        _, _, fault = words(room, kernel(ASKS + at.format(offset)), 4096)
        assert (fault is None) is is_right
    assert fault.kind is FaultKind.ILLEGAL_ADDRESS


@pytest.mark.parametrize("room", LOWERINGS)
def test_sizes_say_what_is_the_kernel_s_and_what_is_the_system_s(room):
    ask = "mov.u32 %r0, %total_smem_size; mov.u32 %r1, %dynamic_smem_size;"
    ask += "mov.u32 %r2, %aggr_smem_size; mov.u32 %r3, {};"
    for last in ("%reserved_smem_offset_cap", "1024"):
        text = kernel(ask.format(last), declared=32)
        assert words(room, text, 96)[0] == [128, 96, 128 + RESERVED_BYTES, RESERVED_BYTES]


def test_the_driver_s_numbers_leave_it_out(context):
    attributes = driver.CUfunction_attribute
    device = ok(driver.cuCtxGetDevice())
    reserved = driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK
    assert ok(driver.cuDeviceGetAttribute(reserved, device)) == RESERVED_BYTES
    texts = [kernel(body, declared=40 << 10) for body in ("mov.u32 %r3, 0;", ASKS)]
    functions = [
        ok(driver.cuModuleGetFunction(ok(driver.cuModuleLoadData(text.encode())), b"test"))
        for text in texts
    ]
    for attribute in (
        attributes.CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES,
        attributes.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
    ):
        without, asking = (ok(driver.cuFuncGetAttribute(attribute, each)) for each in functions)
        assert without == asking
    for size in (0, 1 << 10, 8 << 10):
        without, asking = (
            ok(driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(each, 64, size))
            for each in functions
        )
        assert without == asking


SAME_NAME = """
.version 7.0
.target sm_75
.address_size 64
.func stores()
{{
    .shared .align 4 .b8 words[64];
    .reg .u32 %own, %value;
    mov.u32 %own, %tid.x;
    shl.b32 %own, %own, 2;
    mov.u32 %value, words;
    add.u32 %own, %own, %value;
    st.shared.u32 [%own], 99;
    st.shared.u32 [words], 98;
    {barrier}
    ret;
}}
.visible .entry test(.param .u64 result)
{{
    .shared .align 4 .b8 words[16];
    .reg .u32 %thread, %own, %value;
    .reg .u64 %rd_result;
    mov.u32 %thread, %tid.x;
    shl.b32 %own, %thread, 2;
    mov.u32 %value, words;
    add.u32 %own, %own, %value;
    st.shared.u32 [%own], %thread;
    call stores;
    ld.shared.u32 %value, [%own];
    ld.param.u64 %rd_result, [result];
    mad.wide.u32 %rd_result, %thread, 4, %rd_result;
    st.global.u32 [%rd_result], %value;
    ret;
}}
"""


@pytest.mark.parametrize("room", LOWERINGS)
@pytest.mark.parametrize("barrier", ["", "bar.sync 0;"])
def test_shared_variables_of_one_name_in_two_functions_are_two(room, barrier):
    module = LOWERINGS[room].compile_module(parse(SAME_NAME.format(barrier=barrier)))
    result = bare_launch.aligned(np.zeros(4, np.uint32))
    outcome = bare_launch.run(module, "test", grid=(1,), block=(4,), args=[result])
    assert outcome.kind is OutcomeKind.DONE, outcome.fault
    assert result.tolist() == [0, 1, 2, 3]
