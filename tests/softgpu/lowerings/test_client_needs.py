"""Behaviour that client programs rely on: memsets of host memory, sizes of constants."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from cuda.bindings import driver
from helpers.driver.call_results import held, ok
from helpers.lowering.bare_launch import run

from cudasync.ptx import parse
from cudasync.softgpu import jit, oracle


@pytest.fixture
def mapped(context):
    """Sixteen bytes that host and device share; the fixture frees them."""
    pinned = ok(driver.cuMemHostAlloc(16, driver.CU_MEMHOSTALLOC_DEVICEMAP))
    yield int(ok(driver.cuMemHostGetDevicePointer(pinned, 0)))
    ok(driver.cuMemFreeHost(pinned))


@pytest.fixture
def managed(context):
    memory = ok(driver.cuMemAllocManaged(16, driver.CUmemAttach_flags.CU_MEM_ATTACH_GLOBAL.value))
    yield int(memory)
    ok(driver.cuMemFree(memory))


@pytest.mark.parametrize("kind", ["mapped", "managed"])
@pytest.mark.parametrize(
    ("call", "arguments"),
    [
        (driver.cuMemsetD8, (0x2A, 16)),
        (driver.cuMemsetD16, (0x2A2A, 8)),
        (driver.cuMemsetD32, (0x2A2A2A2A, 4)),
        (driver.cuMemsetD2D8, (4, 0x2A, 4, 4)),
    ],
)
def test_a_memset_of_memory_that_the_host_sees_is_done_on_return(request, kind, call, arguments):
    address = request.getfixturevalue(kind)
    ctypes.memset(address, 1, 16)
    ok(call(address, *arguments))
    assert ctypes.string_at(address, 16) == b"\x2a" * 16


def test_an_asynchronous_memset_is_not(mapped):
    ctypes.memset(mapped, 1, 16)
    stream = ok(driver.cuStreamCreate(0))
    with held(stream):
        ok(driver.cuMemsetD8Async(mapped, 0x2A, 16, stream))
        assert ctypes.string_at(mapped, 16) == b"\x01" * 16
    ok(driver.cuStreamDestroy(stream))


def test_a_kernel_s_constants_have_the_size_of_its_module_s(context):
    text = (
        b".version 7.0\n.target sm_70\n.address_size 64\n"
        b".const .align 8 .f64 table[5];\n.global .u32 other;\n.visible .entry f() { ret; }\n"
    )
    kernel = ok(driver.cuModuleGetFunction(ok(driver.cuModuleLoadData(text)), b"f"))
    size = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES
    assert ok(driver.cuFuncGetAttribute(size, kernel)) == 40


ALIGNED = """
.version 7.0
.target sm_70
.address_size 64
.shared .align 4 .b8 first[4];
.shared .align 256 .b8 tile[8];
.visible .entry places(.param .u64 out)
{
    .local .align 512 .b8 mine[24];
    .local .align 4 .b8 small[4];
    .reg .b32 %r_thread;
    .reg .b64 %rd_out;
    .reg .b64 %rd_place;
    ld.param.u64 %rd_out, [out];
    mov.u32 %r_thread, %tid.x;
    mul.wide.u32 %rd_place, %r_thread, 16;
    add.u64 %rd_out, %rd_out, %rd_place;
    mov.u64 %rd_place, mine;
    st.local.u32 [mine+20], %r_thread;
    cvta.local.u64 %rd_place, %rd_place;
    st.global.u64 [%rd_out], %rd_place;
    mov.u64 %rd_place, tile;
    cvta.shared.u64 %rd_place, %rd_place;
    st.global.u64 [%rd_out+8], %rd_place;
    ret;
}
"""


@pytest.mark.parametrize("lowering", [jit, oracle], ids=["jit", "oracle"])
def test_local_and_shared_variables_lie_where_they_want_to(lowering):
    out = np.zeros((40, 2), np.uint64)
    compiled = lowering.compile_module(parse(ALIGNED), memcheck=False)
    run(compiled, "places", grid=(1,), block=(40,), args=[out])
    mine, tile = out[:, 0], out[:, 1]
    assert not (mine % 512).any()
    assert not (tile % 256).any()
    assert len(set(mine.tolist())) == 40
