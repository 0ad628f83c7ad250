"""Cooperative launches: all blocks are resident at once, and their grid has a barrier.

The kernel synchronises like the headers of cooperative groups: %envreg1 and %envreg2 hold the
address of two words, the second of which is the barrier. Without a barrier the address is 0.
"""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from cuda.bindings import driver
from helpers.driver.call_results import message, ok
from helpers.lowering import bare_launch

from cudasync.ptx import parse
from cudasync.softgpu import install, jit, oracle
from cudasync.softgpu.interface.launch import OutcomeKind

BODY = """.version 6.4
.target sm_75
.address_size 64

// Each thread adds one to its neighbour's word in each of three rounds, if nobody is ahead.
.visible .entry rounds(
    .param .u64 words
)
{
    .reg .u32 %thread, %size, %count, %blocks, %block, %own, %next, %round, %more, %old, %now;
    .reg .u64 %rd_words, %rd_own, %rd_next, %rd_high, %rd_barrier;
    .reg .pred %first, %last, %waits, %again, %gone;

    mov.u32 %old, %envreg2;
    cvt.u64.u32 %rd_barrier, %old;
    mov.u32 %old, %envreg1;
    cvt.u64.u32 %rd_high, %old;
    shl.b64 %rd_high, %rd_high, 32;
    or.b64 %rd_barrier, %rd_barrier, %rd_high;
    setp.eq.u64 %gone, %rd_barrier, 0;
    @%gone trap;
    mov.u32 %thread, %tid.x;
    mov.u32 %size, %ntid.x;
    mov.u32 %block, %ctaid.x;
    mov.u32 %blocks, %nctaid.x;
    mad.lo.u32 %own, %block, %size, %thread;
    mul.lo.u32 %count, %blocks, %size;
    add.u32 %next, %own, 1;
    rem.u32 %next, %next, %count;
    ld.param.u64 %rd_words, [words];
    mad.wide.u32 %rd_own, %own, 4, %rd_words;
    mad.wide.u32 %rd_next, %next, 4, %rd_words;
    setp.ne.u32 %first, %thread, 0;
    sub.u32 %more, 0x80000001, %blocks;
    setp.eq.u32 %last, %block, 0;
    selp.u32 %more, %more, 1, %last;
    mov.u32 %round, 0;
round:
    ld.volatile.global.u32 %now, [%rd_next];
    setp.ne.u32 %gone, %now, %round;
    @%gone trap;
    barrier.sync 0;
    @%first bra read;
    atom.add.release.gpu.u32 %old, [%rd_barrier+4], %more;
wait_read:
    ld.acquire.gpu.u32 %now, [%rd_barrier+4];
    xor.b32 %now, %now, %old;
    setp.ge.s32 %waits, %now, 0;
    @%waits bra wait_read;
read:
    barrier.sync 0;
    add.u32 %round, %round, 1;
    st.global.u32 [%rd_own], %round;
    barrier.sync 0;
    @%first bra written;
    atom.add.release.gpu.u32 %old, [%rd_barrier+4], %more;
wait_written:
    ld.acquire.gpu.u32 %now, [%rd_barrier+4];
    xor.b32 %now, %now, %old;
    setp.ge.s32 %waits, %now, 0;
    @%waits bra wait_written;
written:
    barrier.sync 0;
    setp.lt.u32 %again, %round, 3;
    @%again bra round;
    ret;
}
"""


@pytest.fixture
def rounds(context):
    module = ok(driver.cuModuleLoadData(BODY.encode()))
    return ok(driver.cuModuleGetFunction(module, b"rounds"))


def buffer(count):
    memory = ok(driver.cuMemAlloc(4 * count))
    ok(driver.cuMemsetD32(memory, 0, count))
    return memory


def words(memory, count):
    back = np.empty(count, np.uint32)
    ok(driver.cuMemcpyDtoH(back.ctypes.data, memory, back.nbytes))
    return back


def packed(memory):
    return (int(memory),), (ctypes.c_void_p,)


def by_name(function, grid, block, memory):
    return driver.cuLaunchCooperativeKernel(function, grid, 1, 1, block, 1, 1, 0, 0, packed(memory))


def by_attribute(function, grid, block, memory):
    attribute = driver.CUlaunchAttribute()
    attribute.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_COOPERATIVE
    attribute.value.cooperative = 1
    config = driver.CUlaunchConfig()
    config.gridDimX, config.gridDimY, config.gridDimZ = grid, 1, 1
    config.blockDimX, config.blockDimY, config.blockDimZ = block, 1, 1
    config.hStream = 0
    config.attrs = [attribute]
    config.numAttrs = 1
    return driver.cuLaunchKernelEx(config, function, packed(memory), 0)


@pytest.mark.parametrize("launch", [by_name, by_attribute])
@pytest.mark.parametrize(("grid", "block"), [(1, 32), (7, 40), (16, 256)])
def test_no_block_is_a_round_ahead(rounds, launch, grid, block):
    memory = buffer(grid * block)
    ok(launch(rounds, grid, block, memory))
    ok(driver.cuCtxSynchronize())
    assert (words(memory, grid * block) == 3).all()


def test_as_many_blocks_as_fit_and_no_more(rounds):
    processors = ok(driver.cuDeviceGetAttribute(
        driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0))  # fmt: skip
    most = processors * ok(driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(rounds, 64, 0))
    memory = buffer(64 * most)
    for launch in (by_name, by_attribute):
        (code,) = launch(rounds, most + 1, 64, memory)
        assert code == driver.CUresult.CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE
        assert f"at most {most}" in message(code)
    ok(by_name(rounds, most, 64, memory))
    ok(driver.cuCtxSynchronize())
    assert (words(memory, 64 * most) == 3).all()


def test_the_device_says_that_it_can():
    install()
    ok(driver.cuInit(0))
    attribute = driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH
    assert ok(driver.cuDeviceGetAttribute(attribute, 0)) == 1


def test_an_ordinary_launch_has_no_barrier_of_its_grid(rounds):
    memory = buffer(64)
    values, types = packed(memory)
    ok(driver.cuLaunchKernel(rounds, 2, 1, 1, 32, 1, 1, 0, 0, (values, types), 0))
    (code,) = driver.cuCtxSynchronize()
    assert code == driver.CUresult.CUDA_ERROR_LAUNCH_FAILED


@pytest.mark.parametrize("compile_module", [jit.compile_module, oracle.compile_module])
def test_both_lowerings_know_where_the_barrier_is(compile_module):
    memory = bare_launch.aligned(np.zeros(120, np.uint32))
    workspace = bare_launch.aligned(np.zeros(2, np.uint32))
    outcome = bare_launch.run(
        compile_module(parse(BODY)), "rounds", grid=(3,), block=(40,), args=[memory],
        memory=[workspace], workspace=workspace.ctypes.data, budget=2**26,
    )  # fmt: skip
    assert outcome.kind is OutcomeKind.DONE
    assert (memory == 3).all()
