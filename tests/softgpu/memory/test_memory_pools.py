"""Memory pools, created and default ones: their statistics and their access rights."""

from __future__ import annotations

import ast

import pytest
from cuda.bindings import driver
from helpers.driver.call_results import IS_CUDA_12, ok, tells
from helpers.driver.driver_process import run_driver

R = driver.CUresult
A = driver.CUmemPool_attribute
DEVICE = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
HOST = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_HOST

# The bindings of CUDA 12 have no pools of managed memory.
MANAGED = [] if IS_CUDA_12 else ["managed"]
# Nor do they give the default pool of the host.
POOLS_OF_THE_HOST = ["made"] if IS_CUDA_12 else ["made", "default"]


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
    assert tells(code, "of the pool's 4096")
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


def test_pools_of_the_host_give_memory_that_the_driver_copies(context, stream):
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


def test_a_pool_is_shared_with_other_processes_as_a_descriptor_alone(context):
    kinds = driver.CUmemAllocationHandleType
    what = properties()
    what.handleTypes = kinds.CU_MEM_HANDLE_TYPE_WIN32
    assert driver.cuMemPoolCreate(what)[0] == R.CUDA_ERROR_NOT_SUPPORTED
    what.handleTypes = kinds.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
    code, pool = driver.cuMemPoolCreate(what)
    assert code == R.CUDA_SUCCESS
    assert driver.cuMemPoolDestroy(pool)[0] == R.CUDA_SUCCESS


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


@pytest.mark.parametrize("devices", [1, 2])
@pytest.mark.parametrize("which", POOLS_OF_THE_HOST)
def test_kernels_need_access_to_a_pool_of_the_host(which, devices):
    """An H200 ended such a kernel with 700, also with the pool that is the default."""
    program = f"""
    is_made = {which == "made"}
    what = d.CUmemPoolProps()
    what.allocType = d.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    what.location.type = d.CUmemLocationType.CU_MEM_LOCATION_TYPE_HOST
    if is_made:
        pool = ok(d.cuMemPoolCreate(what))
    else:
        pool = ok(d.cuMemGetDefaultMemPool(what.location, what.allocType))
    here = d.CUmemLocation()
    here.type = d.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    here.id = 0
    memory = ok(d.cuMemAllocFromPoolAsync(64, pool, 0))
    ok(d.cuMemsetD8Async(memory, 5, 64, 0))
    ok(d.cuCtxSynchronize())
    for place in (here, what.location):
        print(int(ok(d.cuMemPoolGetAccess(pool, place))))
    print(read(memory, 1))
    grant = d.CUmemAccessDesc()
    grant.location = here
    grant.flags = d.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
    ok(d.cuMemPoolSetAccess(pool, [grant], 1))
    print(int(ok(d.cuMemPoolGetAccess(pool, here))))
    ok(set_word(memory, 7))
    ok(d.cuCtxSynchronize())
    print(read(memory, 1))
    grant.flags = d.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_NONE
    ok(d.cuMemPoolSetAccess(pool, [grant], 1))
    ok(set_word(memory, 8))
    print(code(d.cuCtxSynchronize()), said(R.CUDA_ERROR_ILLEGAL_ADDRESS).partition(" at ")[0])
    grant.location = what.location
    print(code(d.cuMemPoolSetAccess(pool, [grant], 1)))
    """
    out = run_driver(program, devices=devices).splitlines()
    assert out[:5] == ["0", "3", r"b'\x05'", "3", r"b'\x07'"]
    assert out[5].startswith("ILLEGAL_ADDRESS an illegal memory access was encountered: kernel set")
    assert out[6] == "INVALID_VALUE"


COPIES = """
    def pool_of(number):
        what = d.CUmemPoolProps()
        what.allocType = d.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
        what.location.type = d.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        what.location.id = number
        return ok(d.cuMemPoolCreate(what))
    def grant(pool, number, flags):
        what = d.CUmemAccessDesc()
        what.location.type = d.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        what.location.id = number
        what.flags = d.CUmemAccess_flags(flags)
        ok(d.cuMemPoolSetAccess(pool, [what], 1))
    def box(target, source):
        what = d.CUDA_MEMCPY3D()
        for side, address in (("dst", target), ("src", source)):
            setattr(what, side + "MemoryType", d.CUmemorytype.CU_MEMORYTYPE_DEVICE)
            setattr(what, side + "Device", address)
        what.WidthInBytes, what.Height, what.Depth = 64, 1, 1
        return what
    def flat(target, source):
        what = d.CUDA_MEMCPY2D()
        for side, address in (("dst", target), ("src", source)):
            setattr(what, side + "MemoryType", d.CUmemorytype.CU_MEMORYTYPE_DEVICE)
            setattr(what, side + "Device", address)
        what.WidthInBytes, what.Height = 64, 1
        return what
    def in_graph(target, source):
        return d.cuGraphAddMemcpyNode(graph, None, 0, box(target, source), contexts[0])
    host = ctypes.create_string_buffer(64)
    at = ctypes.addressof(host)
    graph = ok(d.cuGraphCreate(0))
    there = pool_of(1)
    ok(d.cuCtxEnablePeerAccess(contexts[1], 0))
    ok(d.cuCtxSetCurrent(contexts[1]))
    far = ok(d.cuMemAllocFromPoolAsync(64, there, 0))
    ok(d.cuMemsetD8Async(far, 3, 64, 0))
    ok(d.cuCtxSynchronize())
    ok(d.cuCtxSetCurrent(contexts[0]))
    near = ok(d.cuMemAlloc(64))
    copies = {
        "async": lambda a, b: d.cuMemcpyAsync(a, b, 64, stream),
        "dtod async": lambda a, b: d.cuMemcpyDtoDAsync(a, b, 64, stream),
        "dtod": lambda a, b: d.cuMemcpyDtoD(a, b, 64),
        "any": lambda a, b: d.cuMemcpy(a, b, 64),
        "flat": lambda a, b: d.cuMemcpy2DAsync(flat(a, b), stream),
        "box": lambda a, b: d.cuMemcpy3DAsync(box(a, b), stream),
        "node": in_graph,
    }
    def answers():
        found = {name: {code(copy(*ends)) for ends in ((near, far), (far, near))}
                 for name, copy in copies.items()}
        found["to host"] = {code(d.cuMemcpyDtoH(at, far, 64))}
        found["from host"] = {code(d.cuMemcpyHtoD(far, at, 64))}
        found["peer"] = {code(d.cuMemcpyPeerAsync(near, contexts[0], far, contexts[1], 64, stream))}
        return found
    print(answers())
    grant(there, 0, 3)
    print(set().union(*answers().values()))
    grant(there, 0, 0)
    print(set().union(*answers().values()) == {"INVALID_VALUE", "CUDA_SUCCESS"})
"""


def test_a_copy_needs_access_to_the_pools_of_its_ends():
    first, second, third = run_driver(COPIES, devices=2).splitlines()
    refused = ast.literal_eval(first)
    assert refused.pop("peer") == {"CUDA_SUCCESS"}
    assert len(refused) == 9
    assert all(each == {"INVALID_VALUE"} for each in refused.values()), refused
    assert (second, third) == ("{'CUDA_SUCCESS'}", "True")


def test_memory_of_a_pool_is_freed_once(stream):
    memory = ok(driver.cuMemAllocAsync(64, stream))
    ok(driver.cuMemFreeAsync(memory, stream))
    assert driver.cuMemFreeAsync(memory, stream)[0] == R.CUDA_ERROR_INVALID_VALUE
    assert driver.cuMemFree(memory)[0] == R.CUDA_ERROR_INVALID_VALUE
    pinned = ok(driver.cuMemHostAlloc(64, 0))
    assert driver.cuMemFreeAsync(int(pinned), stream)[0] == R.CUDA_ERROR_INVALID_VALUE
    ok(driver.cuMemFreeHost(pinned))


@pytest.mark.parametrize("kind", ["device", "host", "of the device", *MANAGED])
def test_no_bytes_have_an_address_that_is_freed_once(context, stream, kind):
    def allocate():
        if kind == "of the device":
            return ok(driver.cuMemAllocAsync(0, stream))
        what = properties(HOST if kind == "host" else DEVICE)
        if kind == "managed":
            what.allocType = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_MANAGED
        return ok(driver.cuMemAllocFromPoolAsync(0, ok(driver.cuMemPoolCreate(what)), stream))

    first, second = int(allocate()), int(allocate())
    assert 0 not in {first, second}
    assert first != second
    ok(driver.cuMemcpyAsync(first, second, 0, stream))
    ok(driver.cuStreamSynchronize(stream))
    assert driver.cuMemsetD8(first, 1, 1)[0] == R.CUDA_ERROR_INVALID_VALUE
    size = driver.CUpointer_attribute.CU_POINTER_ATTRIBUTE_RANGE_SIZE
    assert int(ok(driver.cuPointerGetAttribute(size, first))) == 0
    ok(driver.cuMemFreeAsync(first, stream))
    ok(driver.cuMemFree(second))
    ok(driver.cuStreamSynchronize(stream))
    for address in (first, second):
        assert driver.cuMemFreeAsync(address, stream)[0] == R.CUDA_ERROR_INVALID_VALUE


def test_calls_without_a_stream_give_some_bytes(context):
    """The documentation of each function says that zero bytes are invalid."""
    refused = R.CUDA_ERROR_INVALID_VALUE
    assert driver.cuMemAlloc(0)[0] == driver.cuMemAllocManaged(0, 1)[0] == refused


@pytest.mark.parametrize("_kind", MANAGED)
def test_a_pool_of_managed_memory_has_no_limit(context, _kind):
    what = properties(most=1 << 20)
    what.allocType = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_MANAGED
    assert driver.cuMemPoolCreate(what)[0] == R.CUDA_ERROR_INVALID_VALUE
