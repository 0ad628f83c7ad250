"""Memory pools: own ones and default ones, what they count, and whom they let in."""

from __future__ import annotations

import pytest
from cuda.bindings import driver
from helpers.abi import message, ok
from helpers.driver_program import run_driver

R = driver.CUresult
A = driver.CUmemPool_attribute
DEVICE = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
HOST = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_HOST


@pytest.fixture
def stream(context):
    return ok(driver.cuStreamCreate(1))


def properties(kind=DEVICE, number=0, most=0):
    what = driver.CUmemPoolProps()
    what.allocType = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    what.location.type = kind
    what.location.id = number
    if most:
        what.maxSize = most
    return what


@pytest.fixture
def pool(context):
    made = ok(driver.cuMemPoolCreate(properties()))
    yield made
    driver.cuMemPoolDestroy(made)


def count(pool, attribute):
    return int(ok(driver.cuMemPoolGetAttribute(pool, attribute)))


def test_a_pool_counts_what_is_used_and_what_it_holds(pool, stream):
    threshold = driver.cuuint64_t(1000)
    ok(driver.cuMemPoolSetAttribute(pool, A.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, threshold))
    first = ok(driver.cuMemAllocFromPoolAsync(3000, pool, stream))
    second = ok(driver.cuMemAllocFromPoolAsync(500, pool, stream))
    assert count(pool, A.CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == 3500
    ok(driver.cuMemFreeAsync(first, stream))
    ok(driver.cuStreamSynchronize(stream))
    assert count(pool, A.CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == 500
    assert count(pool, A.CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) == 1000
    ok(driver.cuMemPoolTrimTo(pool, 600))
    assert count(pool, A.CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) == 600
    ok(driver.cuMemFreeAsync(second, stream))
    ok(driver.cuStreamSynchronize(stream))
    ok(driver.cuMemPoolTrimTo(pool, 0))
    assert count(pool, A.CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) == 0
    for mark in (A.CU_MEMPOOL_ATTR_USED_MEM_HIGH, A.CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH):
        assert count(pool, mark) == 3500
        ok(driver.cuMemPoolSetAttribute(pool, mark, driver.cuuint64_t(0)))
        assert count(pool, mark) == 0


def test_a_pool_has_a_limit_of_its_own(context, stream):
    pool = ok(driver.cuMemPoolCreate(properties(most=4096)))
    memory = ok(driver.cuMemAllocFromPoolAsync(4000, pool, stream))
    code, *_ = driver.cuMemAllocFromPoolAsync(100, pool, stream)
    assert code == R.CUDA_ERROR_OUT_OF_MEMORY
    assert "of the pool's 4096" in message(code)
    ok(driver.cuMemFreeAsync(memory, stream))
    ok(driver.cuStreamSynchronize(stream))
    ok(driver.cuMemAllocFromPoolAsync(4096, pool, stream))
    ok(driver.cuMemPoolDestroy(pool))


def test_memory_outlives_its_pool_until_it_is_freed(context, stream):
    pool = ok(driver.cuMemPoolCreate(properties()))
    memory = ok(driver.cuMemAllocFromPoolAsync(64, pool, stream))
    ok(driver.cuMemPoolDestroy(pool))
    ok(driver.cuMemsetD8Async(memory, 1, 64, stream))
    ok(driver.cuMemFreeAsync(memory, stream))
    ok(driver.cuStreamSynchronize(stream))
    assert driver.cuMemPoolDestroy(pool)[0] == R.CUDA_ERROR_INVALID_VALUE
    assert driver.cuMemAllocFromPoolAsync(64, pool, stream)[0] == R.CUDA_ERROR_INVALID_VALUE


def test_a_device_allocates_from_the_pool_that_is_set(pool, stream):
    default = ok(driver.cuDeviceGetDefaultMemPool(0))
    assert int(ok(driver.cuDeviceGetMemPool(0))) == int(default)
    ok(driver.cuDeviceSetMemPool(0, pool))
    assert int(ok(driver.cuDeviceGetMemPool(0))) == int(pool)
    memory = ok(driver.cuMemAllocAsync(64, stream))
    attribute = driver.CUpointer_attribute.CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE
    assert int(ok(driver.cuPointerGetAttribute(attribute, memory))) == int(pool)
    ok(driver.cuMemFreeAsync(memory, stream))
    ok(driver.cuMemPoolDestroy(pool))
    assert int(ok(driver.cuDeviceGetMemPool(0))) == int(default)
    assert driver.cuMemPoolDestroy(default)[0] == R.CUDA_ERROR_INVALID_VALUE


def test_pools_of_the_host_give_memory_that_both_can_use(context, stream):
    pool = ok(driver.cuMemPoolCreate(properties(HOST)))
    memory = ok(driver.cuMemAllocFromPoolAsync(64, pool, stream))
    ok(driver.cuMemsetD8Async(memory, 7, 64, stream))
    ok(driver.cuStreamSynchronize(stream))
    attribute = driver.CUpointer_attribute.CU_POINTER_ATTRIBUTE_MEMORY_TYPE
    kind = driver.CUmemorytype.CU_MEMORYTYPE_HOST
    assert int(ok(driver.cuPointerGetAttribute(attribute, memory))) == int(kind)
    assert driver.cuDeviceSetMemPool(0, pool)[0] == R.CUDA_ERROR_INVALID_VALUE
    ok(driver.cuMemFreeAsync(memory, stream))
    ok(driver.cuMemPoolDestroy(pool))


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"kind": driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_INVALID}, "INVALID_VALUE"),
        ({"number": 64}, "INVALID_DEVICE"),
        ({"number": -1}, "INVALID_DEVICE"),
    ],
)
def test_a_pool_that_lies_nowhere_is_refused(context, change, code):
    found = driver.cuMemPoolCreate(properties(**change))[0]
    assert found.name == f"CUDA_ERROR_{code}"


def test_a_pool_can_not_be_shared_with_other_processes(context):
    what = properties()
    kind = driver.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
    what.handleTypes = kind
    assert driver.cuMemPoolCreate(what)[0] == R.CUDA_ERROR_NOT_SUPPORTED


def test_another_device_uses_a_pool_only_with_access():
    program = """
    pool = ok(d.cuDeviceGetDefaultMemPool(1))
    there = d.CUmemLocation()
    there.type = d.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    ok(d.cuCtxEnablePeerAccess(contexts[1], 0))
    ok(d.cuCtxSetCurrent(contexts[1]))
    memory = ok(d.cuMemAllocAsync(64, 0))
    ok(d.cuMemsetD8Async(memory, 0, 64, 0))
    ok(d.cuCtxSynchronize())
    ok(d.cuCtxSetCurrent(contexts[0]))
    print(int(ok(d.cuMemPoolGetAccess(pool, there))))
    grant = d.CUmemAccessDesc()
    grant.location = there
    grant.flags = d.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
    ok(d.cuMemPoolSetAccess(pool, [grant], 1))
    print(int(ok(d.cuMemPoolGetAccess(pool, there))))
    ok(set_word(memory, 7))
    ok(d.cuCtxSynchronize())
    print(read(memory, 1))
    grant.flags = d.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_NONE
    ok(d.cuMemPoolSetAccess(pool, [grant], 1))
    ok(set_word(memory, 8))
    print(code(d.cuCtxSynchronize()), said(R.CUDA_ERROR_ILLEGAL_ADDRESS).partition(" at ")[0])
    there.id = 1
    grant.location = there
    print(code(d.cuMemPoolSetAccess(pool, [grant], 1)))
    """
    out = run_driver(program, devices=2).splitlines()
    assert out[:3] == ["0", "3", r"b'\x07'"]
    assert out[3].startswith("ILLEGAL_ADDRESS an illegal memory access was encountered: kernel set")
    assert out[4] == "INVALID_VALUE"


def test_memory_of_a_pool_is_freed_once(stream):
    memory = ok(driver.cuMemAllocAsync(64, stream))
    ok(driver.cuMemFreeAsync(memory, stream))
    assert driver.cuMemFreeAsync(memory, stream)[0] == R.CUDA_ERROR_INVALID_VALUE
    assert driver.cuMemFree(memory)[0] == R.CUDA_ERROR_INVALID_VALUE
    pinned = ok(driver.cuMemHostAlloc(64, 0))
    assert driver.cuMemFreeAsync(int(pinned), stream)[0] == R.CUDA_ERROR_INVALID_VALUE
    ok(driver.cuMemFreeHost(pinned))
