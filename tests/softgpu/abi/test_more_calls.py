"""Rectangles, batches, callbacks, pools and links through the real cuda.bindings."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from cuda.bindings import driver
from helpers.driver.call_results import held, message, ok

from cudasync.softgpu.interface.poison import WORD

INVALID_VALUE = driver.CUresult.CUDA_ERROR_INVALID_VALUE
HOST, DEVICE = driver.CUmemorytype.CU_MEMORYTYPE_HOST, driver.CUmemorytype.CU_MEMORYTYPE_DEVICE


@pytest.fixture
def stream(context):
    return ok(driver.cuStreamCreate(1))


def rectangle(source, target, width, height):
    """Make a CUDA_MEMCPY2D; `source` and `target` are (kind, address, pitch, x, y)."""
    what = driver.CUDA_MEMCPY2D()
    for side, (kind, address, pitch, x, y) in (("src", source), ("dst", target)):
        setattr(what, f"{side}MemoryType", kind)
        setattr(what, f"{side}Host" if kind == HOST else f"{side}Device", address)
        setattr(what, f"{side}Pitch", pitch)
        setattr(what, f"{side}XInBytes", x)
        setattr(what, f"{side}Y", y)
    what.WidthInBytes = width
    what.Height = height
    return what


def test_a_rectangle_goes_to_the_device_and_back(stream):
    image = np.arange(8 * 16, dtype=np.uint8).reshape(8, 16)
    memory, pitch = ok(driver.cuMemAllocPitch(16, 8, 4))
    assert pitch >= 16
    there = rectangle((HOST, image.ctypes.data, 16, 4, 2), (DEVICE, memory, pitch, 0, 0), 8, 5)
    ok(driver.cuMemcpy2DAsync(there, stream))
    image_before = image.copy()
    image[:] = 0
    back = np.full((8, 16), 255, np.uint8)
    home = rectangle((DEVICE, memory, pitch, 0, 0), (HOST, back.ctypes.data, 16, 1, 3), 8, 5)
    ok(driver.cuMemcpy2DAsync(home, stream))
    assert (back[3:8, 1:9] == image_before[2:7, 4:12]).all()
    back[3:8, 1:9] = 255
    assert (back == 255).all()


def test_a_rectangle_that_leaves_its_allocation_is_refused(context):
    memory = ok(driver.cuMemAlloc(64))
    image = np.zeros(128, np.uint8)
    too_much = rectangle((HOST, image.ctypes.data, 8, 0, 0), (DEVICE, memory, 8, 0, 0), 8, 9)
    assert driver.cuMemcpy2D(too_much)[0] == INVALID_VALUE
    narrow = rectangle((HOST, image.ctypes.data, 4, 0, 0), (DEVICE, memory, 8, 0, 0), 8, 2)
    assert driver.cuMemcpy2D(narrow)[0] == INVALID_VALUE
    assert "pitch" in message(INVALID_VALUE)


def test_a_rectangle_can_be_filled(stream):
    memory = ok(driver.cuMemAlloc(64))
    ok(driver.cuMemsetD2D16Async(memory, 16, 0x1234, 3, 4, stream))
    ok(driver.cuStreamSynchronize(stream))
    back = np.zeros((4, 8), np.uint16)
    ok(driver.cuMemcpyDtoH(back.ctypes.data, memory, 64))
    assert (back[:, :3] == 0x1234).all()
    assert (back[:, 3:] == WORD).all()


def test_values_can_be_written_and_waited_for_in_a_batch(stream):
    memory = ok(driver.cuMemAlloc(16))
    kind = driver.CUstreamBatchMemOpType
    write, wait = driver.CUstreamBatchMemOpParams(), driver.CUstreamBatchMemOpParams()
    write.operation = kind.CU_STREAM_MEM_OP_WRITE_VALUE_32
    write.writeValue.address = memory
    write.writeValue.value = 5
    wait.operation = kind.CU_STREAM_MEM_OP_WAIT_VALUE_32
    wait.waitValue.address = memory
    wait.waitValue.value = 5
    other = ok(driver.cuStreamCreate(1))
    ok(driver.cuMemsetD32Async(memory, 0, 4, stream))
    ok(driver.cuStreamSynchronize(stream))
    ok(driver.cuStreamBatchMemOp(other, 1, [wait], 0))
    ok(driver.cuStreamBatchMemOp(stream, 1, [write], 0))
    ok(driver.cuStreamSynchronize(other))


@pytest.mark.parametrize(
    ("flags", "word", "value", "holds"),
    [
        (0, 5, 5, True),
        (0, 4, 5, False),
        (0, 1, 0xFFFFFFFF, True),
        (1, 4, 5, False),
        (1, 5, 5, True),
        (2, 6, 1, False),
        (2, 6, 2, True),
        (3, 0xFFFFFFFF, 0, False),
        (3, 0xFFFFFFF0, 5, True),
    ],
)
def test_a_wait_compares_as_its_flags_say(stream, flags, word, value, holds):
    memory = ok(driver.cuMemHostAlloc(4, 0))
    place = ctypes.c_uint32.from_address(int(memory))
    place.value = word
    ok(driver.cuStreamWaitValue32(stream, int(memory), value, flags))
    driver.cuStreamQuery(stream)
    done = driver.cuStreamQuery(stream)[0] == driver.CUresult.CUDA_SUCCESS
    assert done is holds
    place.value = {0: value, 1: value, 2: value, 3: 0}[flags]
    ok(driver.cuStreamSynchronize(stream))


def test_a_callback_is_told_its_stream(stream):
    seen = []
    prototype = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)
    note = prototype(lambda *arguments: seen.append(arguments))
    address = ctypes.cast(note, ctypes.c_void_p).value
    ok(driver.cuStreamAddCallback(stream, address, 7, 0))
    ok(driver.cuStreamSynchronize(stream))
    assert seen == [(int(stream), 0, 7)]


def test_pool_memory_comes_and_goes_with_the_stream(context, stream):
    pool = ok(driver.cuDeviceGetDefaultMemPool(0))
    used = driver.CUmemPool_attribute.CU_MEMPOOL_ATTR_USED_MEM_CURRENT
    before = int(ok(driver.cuMemPoolGetAttribute(pool, used)))
    memory = ok(driver.cuMemAllocFromPoolAsync(1000, pool, stream))
    assert int(ok(driver.cuMemPoolGetAttribute(pool, used))) == before + 1000
    ok(driver.cuMemFreeAsync(memory, stream))
    ok(driver.cuStreamSynchronize(stream))
    assert int(ok(driver.cuMemPoolGetAttribute(pool, used))) == before


def test_enqueued_frees_make_room_when_memory_is_short(stream):
    free, _ = ok(driver.cuMemGetInfo())
    for _ in range(3):
        memory = ok(driver.cuMemAllocAsync(free // 2 + 4096, stream))
        ok(driver.cuMemFreeAsync(memory, stream))
    ok(driver.cuStreamSynchronize(stream))


def test_a_link_of_one_text_gives_that_text(context):
    text = b".version 6.4\n.target sm_75\n.address_size 64\n.visible .entry nothing() { ret; }\n"
    link = ok(driver.cuLinkCreate(0, [], []))
    kind = driver.CUjitInputType
    ok(driver.cuLinkAddData(link, kind.CU_JIT_INPUT_PTX, text, len(text), b"text", 0, [], []))
    image, _ = ok(driver.cuLinkComplete(link))
    assert ctypes.string_at(image) == text
    module = ok(driver.cuModuleLoadData(ctypes.string_at(image)))
    ok(driver.cuModuleGetFunction(module, b"nothing"))
    ok(driver.cuLinkDestroy(link))
    assert driver.cuLinkDestroy(link)[0] == driver.CUresult.CUDA_ERROR_INVALID_HANDLE


def test_the_legacy_stream_is_idle_when_its_blocking_streams_are(context):
    blocking = ok(driver.cuStreamCreate(0))
    memory = ok(driver.cuMemAlloc(4))
    with held(blocking):
        ok(driver.cuMemsetD8Async(memory, 1, 4, blocking))
        assert driver.cuStreamQuery(0)[0] == driver.CUresult.CUDA_ERROR_NOT_READY
    ok(driver.cuMemsetD8Async(memory, 2, 4, blocking))
    ok(driver.cuStreamSynchronize(0))
    ok(driver.cuStreamQuery(blocking))
