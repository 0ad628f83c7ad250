"""Whole contexts, stream attributes, words in memory, occupancy, and the oldest way to launch."""

from __future__ import annotations

import ctypes

import pytest
from cuda.bindings import driver
from helpers.driver.call_results import create_context, message, ok
from helpers.driver.driver_process import run_driver

R = driver.CUresult
PTX = b""".version 6.4
.target sm_75
.address_size 64
.visible .entry add(.param .u64 add_word, .param .u32 add_value, .param .f32 add_more)
{
    .reg .u32 %value, %old;
    .reg .f32 %more;
    .reg .u64 %rd_word;
    .shared .u32 scratch[1024];
    ld.param.u64 %rd_word, [add_word];
    ld.param.u32 %value, [add_value];
    ld.param.f32 %more, [add_more];
    cvt.rni.u32.f32 %old, %more;
    add.u32 %value, %value, %old;
    atom.global.add.u32 %old, [%rd_word], %value;
    st.shared.u32 [scratch], %old;
    ret;
}
"""


@pytest.fixture
def kernel(context):
    return ok(driver.cuModuleGetFunction(ok(driver.cuModuleLoadData(PTX)), b"add"))


def word(address):
    back = (ctypes.c_uint * 1)()
    ok(driver.cuMemcpyDtoH(ctypes.addressof(back), address, 4))
    return back[0]


def test_an_event_stands_for_all_of_a_context(context):
    memory = ok(driver.cuMemHostAlloc(8, 0))
    place = ctypes.c_uint32.from_address(int(memory))
    place.value = 0
    held, free = ok(driver.cuStreamCreate(1)), ok(driver.cuStreamCreate(1))
    event = ok(driver.cuEventCreate(0))
    ok(driver.cuStreamWaitValue32(held, int(memory), 1, 1))
    ok(driver.cuCtxRecordEvent(context, event))
    for _ in range(3):
        assert driver.cuEventQuery(event)[0] == R.CUDA_ERROR_NOT_READY
    ok(driver.cuStreamSynchronize(free))
    place.value = 1
    ok(driver.cuEventSynchronize(event))


def test_all_of_a_context_waits_for_an_event_also_what_is_made_later(context):
    memory = ok(driver.cuMemHostAlloc(16, 0))
    words = (ctypes.c_uint32 * 4).from_address(int(memory))
    words[:] = [0] * 4
    held, before = ok(driver.cuStreamCreate(1)), ok(driver.cuStreamCreate(1))
    event = ok(driver.cuEventCreate(0))
    ok(driver.cuStreamWaitValue32(held, int(memory), 1, 1))
    ok(driver.cuEventRecord(event, held))
    ok(driver.cuCtxWaitEvent(context, event))
    later = ok(driver.cuStreamCreate(1))
    for number, stream in enumerate((before, later, driver.CUstream(2))):
        ok(driver.cuStreamWriteValue32(stream, int(memory) + 4 * (number + 1), 7, 0))
        for _ in range(3):
            assert driver.cuStreamQuery(stream)[0] == R.CUDA_ERROR_NOT_READY
    assert list(words) == [0] * 4
    words[0] = 1
    ok(driver.cuCtxSynchronize())
    assert list(words) == [1, 7, 7, 7]
    late = ok(driver.cuStreamCreate(1))
    assert driver.cuStreamQuery(late)[0] == R.CUDA_SUCCESS


def test_events_of_other_contexts_are_refused_for_a_record(context):
    event = ok(driver.cuEventCreate(0))
    other = create_context()
    assert driver.cuCtxRecordEvent(other, event)[0] == R.CUDA_ERROR_INVALID_HANDLE
    ok(driver.cuCtxWaitEvent(other, event))
    ok(driver.cuCtxDestroy(other))
    assert driver.cuCtxRecordEvent(other, event)[0] == R.CUDA_ERROR_INVALID_CONTEXT


def test_a_context_ends_with_its_last_user():
    program = """
    made = create_context()
    assert int(ok(d.cuCtxAttach(0))) == int(made)
    print(code(d.cuCtxAttach(1)))
    ok(d.cuCtxDetach(made))
    ok(d.cuMemFree(ok(d.cuMemAlloc(4))))
    ok(d.cuCtxDetach(made))
    print(code(d.cuCtxDetach(made)), int(ok(d.cuCtxGetCurrent())) == int(contexts[0]))
    """
    assert run_driver(program) == "INVALID_VALUE\nINVALID_CONTEXT True\n"


def test_settings_of_a_context_are_given_back(context):
    prefer = driver.CUfunc_cache.CU_FUNC_CACHE_PREFER_L1
    ok(driver.cuCtxSetCacheConfig(prefer))
    assert ok(driver.cuCtxGetCacheConfig()) == prefer
    limit = driver.CUlimit
    ok(driver.cuCtxSetLimit(limit.CU_LIMIT_STACK_SIZE, 4096))
    assert ok(driver.cuCtxGetLimit(limit.CU_LIMIT_STACK_SIZE)) == 4096
    code = driver.cuCtxSetLimit(limit.CU_LIMIT_SHMEM_SIZE, 1)[0]
    assert code == R.CUDA_ERROR_UNSUPPORTED_LIMIT
    assert driver.cuCtxSetFlags(1 << 20)[0] == R.CUDA_ERROR_INVALID_VALUE
    ok(driver.cuCtxSetFlags(driver.CUctx_flags.CU_CTX_SCHED_YIELD))
    assert ok(driver.cuCtxGetFlags()) == int(driver.CUctx_flags.CU_CTX_SCHED_YIELD)


def test_attributes_of_a_stream_are_given_back_and_copied(context):
    first, second = ok(driver.cuStreamCreate(1)), ok(driver.cuStreamCreate(1))
    kind = driver.CUstreamAttrID
    value = driver.CUstreamAttrValue()
    value.syncPolicy = driver.CUsynchronizationPolicy.CU_SYNC_POLICY_YIELD
    policy = kind.CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY
    ok(driver.cuStreamSetAttribute(first, policy, value))
    value.priority = -3
    ok(driver.cuStreamSetAttribute(first, kind.CU_LAUNCH_ATTRIBUTE_PRIORITY, value))
    ok(driver.cuStreamCopyAttributes(second, first))
    assert ok(driver.cuStreamGetAttribute(second, policy)).syncPolicy == 3
    assert ok(driver.cuStreamGetPriority(second)) == -3
    code = driver.cuStreamSetAttribute(first, kind.CU_LAUNCH_ATTRIBUTE_COOPERATIVE, value)[0]
    assert code == R.CUDA_ERROR_INVALID_VALUE


def test_words_that_streams_wait_for_or_write_are_whole_and_flags_known(context):
    stream = ok(driver.cuStreamCreate(1))
    memory = int(ok(driver.cuMemAlloc(64)))
    for call, *arguments in (
        (driver.cuStreamWaitValue32, memory + 2, 0, 0),
        (driver.cuStreamWaitValue64, memory + 4, 0, 0),
        (driver.cuStreamWriteValue64, memory + 4, 0, 0),
        (driver.cuStreamWaitValue32, memory, 0, 8),
        (driver.cuStreamWriteValue32, memory, 0, 2),
    ):
        assert call(stream, *arguments)[0] == R.CUDA_ERROR_INVALID_VALUE
    code = driver.cuStreamWaitValue32(stream, memory, 0, 1 << 30)[0]
    assert code == R.CUDA_ERROR_NOT_SUPPORTED


def test_events_that_other_processes_share_have_no_times(context):
    assert driver.cuEventCreate(4)[0] == R.CUDA_ERROR_INVALID_VALUE
    ok(driver.cuEventDestroy(ok(driver.cuEventCreate(4 | 2))))


def test_occupancy_follows_threads_and_shared_memory(kernel):
    active = driver.cuOccupancyMaxActiveBlocksPerMultiprocessor
    assert ok(active(kernel, 1024, 0)) == 2
    assert ok(active(kernel, 64, 15 << 10)) == 5
    assert ok(active(kernel, 2048, 0)) == 0
    spare = ok(driver.cuOccupancyAvailableDynamicSMemPerBlock(kernel, 5, 64))
    assert ok(active(kernel, 64, spare)) >= 5
    assert ok(driver.cuOccupancyAvailableDynamicSMemPerBlock(kernel, 5, 1024)) == 0
    code = driver.cuOccupancyAvailableDynamicSMemPerBlock(kernel, 0, 64)[0]
    assert code == R.CUDA_ERROR_INVALID_VALUE


def test_the_best_block_leaves_room_for_its_shared_memory(kernel):
    best = driver.cuOccupancyMaxPotentialBlockSize
    grid, block = ok(best(kernel, None, 0, 0))
    assert (grid, block) == (16, 1024)
    grid, block = ok(best(kernel, None, 0, 100))
    assert block <= 100
    grid, block = ok(best(kernel, None, 40 << 10, 0))
    assert (grid, block) == (16, 1024)
    grid, block = ok(best(kernel, None, 200 << 10, 0))
    assert (grid, block) == (0, 0)


def test_a_device_says_what_its_attributes_say(context):
    found = ok(driver.cuDeviceGetProperties(0))
    assert found.maxThreadsPerBlock == 1024
    assert list(found.maxThreadsDim) == [1024, 1024, 64]
    assert found.SIMDWidth == 32


@pytest.mark.skipif(
    not hasattr(driver, "CUatomicOperation"), reason="these bindings do not have it yet"
)
def test_a_device_says_which_atomics_on_host_memory_it_has(context):
    operations = driver.CUatomicOperation
    asked = [operations.CU_ATOMIC_OPERATION_INTEGER_ADD, operations.CU_ATOMIC_OPERATION_FLOAT_MIN]
    assert list(ok(driver.cuDeviceGetHostAtomicCapabilities(asked, 2, 0))) == [31, 0]


@pytest.mark.skipif(not hasattr(driver, "cuParamSeti"), reason="these bindings have it no more")
def test_the_oldest_way_to_launch_still_does(kernel):
    memory = ok(driver.cuMemAlloc(4))
    ok(driver.cuMemsetD32(memory, 0, 1))
    pointer = (ctypes.c_uint64 * 1)(int(memory))
    ok(driver.cuFuncSetBlockShape(kernel, 4, 1, 1))
    ok(driver.cuParamSetv(kernel, 0, ctypes.addressof(pointer), 8))
    ok(driver.cuParamSeti(kernel, 8, 5))
    ok(driver.cuParamSetf(kernel, 12, 2.0))
    ok(driver.cuParamSetSize(kernel, 16))
    ok(driver.cuLaunchGrid(kernel, 3, 1))
    ok(driver.cuLaunch(kernel))
    assert word(memory) == 7 * 4 * 4
    ok(driver.cuParamSetSize(kernel, 8))
    assert driver.cuLaunch(kernel)[0] == R.CUDA_ERROR_INVALID_VALUE
    assert "takes 16 bytes of arguments, not 8: call cuParamSetSize" in message(
        R.CUDA_ERROR_INVALID_VALUE
    )
    assert driver.cuFuncSetBlockShape(kernel, 0, 1, 1)[0] == R.CUDA_ERROR_INVALID_VALUE
