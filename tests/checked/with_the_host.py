"""The host's reads and writes of pinned and managed memory, as the program declares them."""

from __future__ import annotations

import ctypes

import numpy as np
from cuda.bindings import driver

import cudasync as cs
from checked.table import call, memory, ok, pinned, right, streams, wrong
from cudasync.testing import host_access


@wrong("race", "the host fills the pinned source anew while the copy may still read it")
def a_source_that_is_used_again():
    source = cs.pinned_empty(16, np.int32)
    with streams(1) as (one,), memory(64, 64) as (x, y):
        for address in (x, y):
            host_access(source, writes=True)
            source[:] = 1
            ok(driver.cuMemcpyHtoDAsync(address, source.ctypes.data, 64, one))
        ok(driver.cuStreamSynchronize(one))


@right("it waits for the copy first")
def a_source_that_is_used_again_in_time():
    source = cs.pinned_empty(16, np.int32)
    with streams(1) as (one,), memory(64, 64) as (x, y):
        for address in (x, y):
            host_access(source, writes=True)
            source[:] = 1
            ok(driver.cuMemcpyHtoDAsync(address, source.ctypes.data, 64, one))
            ok(driver.cuStreamSynchronize(one))


@right("pageable memory is read at the call, so the host may have it again at once")
def a_pageable_source_that_is_used_again():
    source = np.empty(16, np.int32)
    with streams(1) as (one,), memory(64, 64) as (x, y):
        for address in (x, y):
            source[:] = 1
            ok(driver.cuMemcpyHtoDAsync(address, source.ctypes.data, 64, one))
        ok(driver.cuStreamSynchronize(one))


@wrong("race", "the host reads what the copy has not brought yet")
def a_result_that_is_read_too_early():
    target = cs.pinned_empty(16, np.int32)
    with streams(1) as (one,), memory(64) as (x,):
        ok(driver.cuLaunchKernel(*call("fill", x, 16, 1, on=one)))
        ok(driver.cuMemcpyDtoHAsync(target.ctypes.data, x, 64, one))
        host_access(target, writes=False)
        target.sum()
        ok(driver.cuStreamSynchronize(one))


@right("it reads behind the event that was recorded behind the copy")
def a_result_that_is_read_in_time():
    target = cs.pinned_empty(16, np.int32)
    with streams(1) as (one,), memory(64) as (x,):
        done = ok(driver.cuEventCreate(2))
        ok(driver.cuMemcpyDtoHAsync(target.ctypes.data, x, 64, one))
        ok(driver.cuEventRecord(done, one))
        ok(driver.cuEventSynchronize(done))
        host_access(target, writes=False)
        assert target.sum() == 0
        ok(driver.cuEventDestroy(done))


@wrong("race", "a kernel and the host use managed memory at once")
def managed_memory_at_once():
    flags = driver.CUmemAttach_flags.CU_MEM_ATTACH_GLOBAL.value
    x = int(ok(driver.cuMemAllocManaged(64, flags)))
    view = np.frombuffer((ctypes.c_int * 16).from_address(x), np.int32)
    view[:] = 0
    ok(driver.cuLaunchKernel(*call("fill", x, 16, 1)))
    host_access(view, writes=False)
    ok(driver.cuCtxSynchronize())
    ok(driver.cuMemFree(x))


@right("one after the other")
def managed_memory_in_turn():
    flags = driver.CUmemAttach_flags.CU_MEM_ATTACH_GLOBAL.value
    x = int(ok(driver.cuMemAllocManaged(64, flags)))
    view = np.frombuffer((ctypes.c_int * 16).from_address(x), np.int32)
    host_access(view, writes=True)
    view[:] = 0
    ok(driver.cuLaunchKernel(*call("fill", x, 16, 1)))
    ok(driver.cuCtxSynchronize())
    host_access(view, writes=False)
    assert view.sum() == 16
    ok(driver.cuMemFree(x))


@wrong("init", "the host fills half of the managed memory that the kernel reads")
def managed_memory_half_filled():
    flags = driver.CUmemAttach_flags.CU_MEM_ATTACH_GLOBAL.value
    x = int(ok(driver.cuMemAllocManaged(64, flags)))
    with memory(4) as (total,):
        np.frombuffer((ctypes.c_int * 16).from_address(x), np.int32)[:8] = 0
        ok(driver.cuLaunchKernel(*call("sum", total, x, 16)))
        ok(driver.cuCtxSynchronize())
    ok(driver.cuMemFree(x))


@right("the host fills all of it, unseen, with zeros")
def managed_memory_filled():
    flags = driver.CUmemAttach_flags.CU_MEM_ATTACH_GLOBAL.value
    x = int(ok(driver.cuMemAllocManaged(64, flags)))
    with memory(4) as (total,):
        np.frombuffer((ctypes.c_int * 16).from_address(x), np.int32)[:] = 0
        for _ in range(2):
            ok(driver.cuLaunchKernel(*call("sum", total, x, 16)))
        ok(driver.cuCtxSynchronize())
    ok(driver.cuMemFree(x))


@wrong(
    "race", "of three rounds over two buffers the third takes the first again, and does not wait"
)
def a_ring_that_is_too_short():
    with streams(2) as (copies, work), memory(64, 64, 4) as (*ring, total), pinned(64) as (source,):
        copied = [ok(driver.cuEventCreate(2)) for _ in ring]
        for i in range(3):
            ok(driver.cuMemcpyHtoDAsync(ring[i % 2], source, 64, copies))
            ok(driver.cuEventRecord(copied[i % 2], copies))
            ok(driver.cuStreamWaitEvent(work, copied[i % 2], 0))
            ok(driver.cuLaunchKernel(*call("sum", total, ring[i % 2], 16, on=work)))
        for each in copied:
            ok(driver.cuEventDestroy(each))


@right("a copy waits for the kernel that used its buffer two rounds before")
def a_ring():
    with streams(2) as (copies, work), memory(64, 64, 4) as (*ring, total), pinned(64) as (source,):
        copied, used = ([ok(driver.cuEventCreate(2)) for _ in ring] for _ in range(2))
        for i in range(5):
            ok(driver.cuStreamWaitEvent(copies, used[i % 2], 0))
            ok(driver.cuMemcpyHtoDAsync(ring[i % 2], source, 64, copies))
            ok(driver.cuEventRecord(copied[i % 2], copies))
            ok(driver.cuStreamWaitEvent(work, copied[i % 2], 0))
            ok(driver.cuLaunchKernel(*call("sum", total, ring[i % 2], 16, on=work)))
            ok(driver.cuEventRecord(used[i % 2], work))
        for each in copied + used:
            ok(driver.cuEventDestroy(each))


def rows_of(pitch: int, host: int, device: int) -> driver.CUDA_MEMCPY2D:
    """The parameters of a copy of four rows of eight bytes to the device."""
    box = driver.CUDA_MEMCPY2D()
    box.srcMemoryType = driver.CUmemorytype.CU_MEMORYTYPE_HOST
    box.srcHost, box.srcPitch = host, 8
    box.dstMemoryType = driver.CUmemorytype.CU_MEMORYTYPE_DEVICE
    box.dstDevice, box.dstPitch = device, pitch
    box.WidthInBytes, box.Height = 8, 4
    return box


@wrong("race", "two copies of columns share a column")
def columns_that_overlap():
    with streams() as (one, two), memory(64) as (x,), pinned(32, 32) as (left, right_):
        ok(driver.cuMemcpy2DAsync(rows_of(16, left, x), one))
        ok(driver.cuMemcpy2DAsync(rows_of(16, right_, x + 4), two))


@right("each has columns of its own, though their rows lie between each other")
def columns_beside_each_other():
    with streams() as (one, two), memory(64) as (x,), pinned(32, 32) as (left, right_):
        ok(driver.cuMemcpy2DAsync(rows_of(16, left, x), one))
        ok(driver.cuMemcpy2DAsync(rows_of(16, right_, x + 8), two))


@wrong("init", "the copy brings what nobody has written, and the host reads it")
def a_result_that_nobody_wrote():
    target = cs.pinned_empty(16, np.int32)
    with memory(64, value=None) as (x,):
        ok(driver.cuMemcpyDtoH(target.ctypes.data, x, 64))
        host_access(target, writes=False)


@right("the host reads the part that was written")
def a_result_that_is_there_in_part():
    target = cs.pinned_empty(16, np.int32)
    with memory(64, value=None) as (x,):
        ok(driver.cuMemsetD8(x, 0, 32))
        ok(driver.cuMemcpyDtoH(target.ctypes.data, x, 64))
        host_access(target[:8], writes=False)


@right("what was brought along the host has overwritten, though it declares nothing")
def a_buffer_that_is_filled_by_the_host():
    both = cs.pinned_empty(16, np.int32)
    with memory(64, value=None) as (x,), memory(64) as (y,):
        ok(driver.cuMemcpyDtoH(both.ctypes.data, x, 64))
        both[:] = 5
        ok(driver.cuMemcpyHtoD(x, both.ctypes.data, 64))
        ok(driver.cuLaunchKernel(*call("twice", y, x, 16)))
