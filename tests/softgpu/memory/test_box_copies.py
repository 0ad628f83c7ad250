"""Copies of boxes and batches of copies, through the real cuda.bindings."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from cuda.bindings import driver
from helpers.driver.call_results import held, message, ok
from helpers.driver.driver_process import run_driver
from hypothesis import given
from hypothesis import strategies as st

from cudasync.softgpu.core.memory.row_copies import move_rows
from cudasync.softgpu.interface.poison import WORD

R = driver.CUresult
KIND = driver.CUmemorytype
HOST, DEVICE = KIND.CU_MEMORYTYPE_HOST, KIND.CU_MEMORYTYPE_DEVICE
P = driver.CUdeviceptr
ORDER = driver.CUmemcpySrcAccessOrder


@pytest.fixture
def stream(context):
    return ok(driver.cuStreamCreate(1))


def box(source, target, width, height, depth, of=driver.CUDA_MEMCPY3D):
    """Make a copy descriptor; `source` and `target` are (kind, address, pitch, height, x, y, z)."""
    what = of()
    for side, (kind, address, pitch, rows, x, y, z) in (("src", source), ("dst", target)):
        setattr(what, f"{side}MemoryType", kind)
        setattr(what, f"{side}Host" if kind == HOST else f"{side}Device", address)
        setattr(what, f"{side}Pitch", pitch)
        setattr(what, f"{side}Height", rows)
        setattr(what, f"{side}XInBytes", x)
        setattr(what, f"{side}Y", y)
        setattr(what, f"{side}Z", z)
    what.WidthInBytes, what.Height, what.Depth = width, height, depth
    return what


def cube(*shape):
    return np.arange(np.prod(shape), dtype=np.uint8).reshape(shape)


@pytest.mark.parametrize("is_async", [True, False])
def test_a_box_goes_to_the_device_and_back(stream, is_async):
    image = cube(4, 5, 8)
    memory = ok(driver.cuMemAlloc(3 * 4 * 16))
    there = box((HOST, image.ctypes.data, 8, 5, 2, 1, 1), (DEVICE, memory, 16, 4, 0, 0, 0), 5, 3, 2)
    back = np.zeros((4, 5, 8), np.uint8)
    home = box((DEVICE, memory, 16, 4, 0, 0, 0), (HOST, back.ctypes.data, 8, 5, 3, 2, 2), 5, 3, 2)
    before = image.copy()
    if is_async:
        ok(driver.cuMemcpy3DAsync(there, stream))
        image[:] = 0  # The image is pageable, so the call has read it.
        ok(driver.cuMemcpy3DAsync(home, stream))
    else:
        ok(driver.cuMemcpy3D(there))
        ok(driver.cuMemcpy3D(home))
    assert (back[2:4, 2:5, 3:8] == before[1:3, 1:4, 2:7]).all()
    back[2:4, 2:5, 3:8] = 0
    assert not back.any()


@pytest.mark.parametrize(
    ("source", "target", "sizes", "said"),
    [
        ((8, 5), (4, 4), (5, 3, 2), "the pitch 4 is less than the bytes of a row"),
        ((8, 5), (8, 2), (5, 3, 2), "the height 2 is less than the rows of a slice"),
        ((8, 5), (64, 4), (8, 3, 2), "pass the end"),
    ],
)
def test_a_box_that_can_not_be_is_refused(context, source, target, sizes, said):
    image = cube(4, 5, 8)
    memory = ok(driver.cuMemAlloc(256))
    what = box(
        (HOST, image.ctypes.data, *source, 0, 0, 0), (DEVICE, memory, *target, 0, 0, 0), *sizes
    )
    assert driver.cuMemcpy3D(what)[0] == R.CUDA_ERROR_INVALID_VALUE
    assert said in message(R.CUDA_ERROR_INVALID_VALUE)


def test_an_array_that_is_none_and_a_level_of_memory_are_refused(context):
    memory = ok(driver.cuMemAlloc(64))
    end = (DEVICE, memory, 8, 1, 0, 0, 0)
    what = box(end, (KIND.CU_MEMORYTYPE_ARRAY, 0, 8, 1, 0, 0, 0), 8, 1, 1)
    assert driver.cuMemcpy3D(what)[0] == R.CUDA_ERROR_INVALID_VALUE
    what = box(end, end, 8, 1, 1)
    what.srcLOD = 1
    assert driver.cuMemcpy3D(what)[0] == R.CUDA_ERROR_INVALID_VALUE


def test_a_captured_box_is_a_node(stream):
    memory = ok(driver.cuMemAlloc(128))
    ok(driver.cuMemsetD8Async(memory, 3, 64, stream))
    mode = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL
    ok(driver.cuStreamBeginCapture(stream, mode))
    end = (DEVICE, memory, 8, 2, 0, 0, 0)
    ok(driver.cuMemcpy3DAsync(box(end, (DEVICE, int(memory) + 64, 8, 2, 0, 0, 0), 8, 2, 2), stream))
    graph = ok(driver.cuStreamEndCapture(stream))
    launched = ok(driver.cuGraphInstantiate(graph, 0))
    ok(driver.cuGraphLaunch(launched, stream))
    ok(driver.cuStreamSynchronize(stream))
    back = np.zeros(64, np.uint8)
    ok(driver.cuMemcpyDtoH(back.ctypes.data, int(memory) + 64, 64))
    assert (back[:32] == 3).all()
    assert (back[32:].view(np.uint16) == WORD).all()


def test_a_box_goes_from_device_to_device():
    program = """
    here = ok(d.cuMemAlloc(64))
    ok(d.cuMemsetD8(here, 5, 64))
    ok(d.cuCtxSynchronize())
    ok(d.cuCtxSetCurrent(contexts[1]))
    there = ok(d.cuMemAlloc(64))
    what = d.CUDA_MEMCPY3D_PEER()
    kind = d.CUmemorytype.CU_MEMORYTYPE_DEVICE
    what.srcMemoryType = what.dstMemoryType = kind
    what.srcDevice, what.dstDevice = here, there
    what.srcContext, what.dstContext = contexts
    what.srcPitch = what.dstPitch = 16
    what.srcHeight = what.dstHeight = 2
    what.WidthInBytes, what.Height, what.Depth = 8, 2, 2
    ok(d.cuMemcpy3DPeer(what))
    print(read(there, 64).count(5))
    what.srcContext = d.CUcontext(0xDEAD)
    print(code(d.cuMemcpy3DPeerAsync(what, 0)))
    """
    assert run_driver(program, devices=2) == "32\nINVALID_CONTEXT\n"


def attributes(order):
    what = driver.CUmemcpyAttributes()
    what.srcAccessOrder = order
    return what


def test_a_batch_copies_all_of_it(stream):
    host = [np.full(16, n, np.uint8) for n in range(3)]
    memory = ok(driver.cuMemAlloc(48))
    targets = [P(int(memory) + 16 * n) for n in range(3)]
    sources = [P(each.ctypes.data) for each in host]
    orders = [
        attributes(ORDER.CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL),
        attributes(ORDER.CU_MEMCPY_SRC_ACCESS_ORDER_STREAM),
    ]
    with held(stream):
        ok(driver.cuMemcpyBatchAsync(targets, sources, [16] * 3, 3, orders, [0, 2], 2, stream))
        for each in host:
            each[:] = 9
    # The calls have read the first two sources; the third is read in stream order.
    back = np.zeros(48, np.uint8)
    ok(driver.cuMemcpyDtoHAsync(back.ctypes.data, memory, 48, stream))
    assert back.reshape(3, 16)[:, 0].tolist() == [0, 1, 9]


@pytest.mark.parametrize(
    ("count", "orders", "starts"),
    [
        (2, [ORDER.CU_MEMCPY_SRC_ACCESS_ORDER_INVALID], [0]),
        (2, [ORDER.CU_MEMCPY_SRC_ACCESS_ORDER_ANY], [1]),
        (2, [ORDER.CU_MEMCPY_SRC_ACCESS_ORDER_ANY] * 2, [0, 0]),
        (2, [ORDER.CU_MEMCPY_SRC_ACCESS_ORDER_ANY] * 2, [0, 2]),
        (0, [], []),
    ],
)
def test_a_batch_that_makes_no_sense_is_refused_whole(stream, count, orders, starts):
    memory = ok(driver.cuMemAlloc(32))
    ends = [P(int(memory)), P(int(memory) + 16)][:count]
    found = driver.cuMemcpyBatchAsync(
        ends,
        ends,
        [16] * count,
        count,
        [attributes(o) for o in orders],
        starts,
        len(starts),
        stream,
    )
    assert found[0] == R.CUDA_ERROR_INVALID_VALUE


def test_a_batch_is_not_for_the_legacy_stream(context):
    memory = ok(driver.cuMemAlloc(32))
    order = attributes(ORDER.CU_MEMCPY_SRC_ACCESS_ORDER_ANY)
    copy = [P(int(memory))], [P(int(memory) + 16)], [16], 1, [order], [0], 1
    assert driver.cuMemcpyBatchAsync(*copy, 0)[0] == R.CUDA_ERROR_INVALID_VALUE
    ok(driver.cuMemcpyBatchAsync(*copy, driver.CUstream(driver.CU_STREAM_PER_THREAD)))
    one = int(memory), int(memory) + 16, 16
    if hasattr(driver, "cuMemcpyWithAttributesAsync"):
        ok(driver.cuMemcpyWithAttributesAsync(*one, order, 0))


def test_a_batch_of_boxes_copies_all_of_it(stream):
    image = cube(2, 4, 8)
    memory = ok(driver.cuMemAlloc(64))
    what = driver.CUDA_MEMCPY3D_BATCH_OP()
    pointer = driver.CUmemcpy3DOperandType.CU_MEMCPY_OPERAND_TYPE_POINTER
    for end, address in ((what.src, image.ctypes.data), (what.dst, memory)):
        end.type = pointer
        end.op.ptr.ptr = address
    what.src.op.ptr.rowLength, what.src.op.ptr.layerHeight = 8, 4
    what.extent.width, what.extent.height, what.extent.depth = 4, 2, 2
    what.srcAccessOrder = ORDER.CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL
    ok(driver.cuMemcpy3DBatchAsync(1, [what], 0, stream))
    back = np.zeros(16, np.uint8)
    ok(driver.cuMemcpyDtoHAsync(back.ctypes.data, memory, 16, stream))
    assert (back.reshape(2, 2, 4) == image[:, :2, :4]).all()
    what.dst.type = driver.CUmemcpy3DOperandType.CU_MEMCPY_OPERAND_TYPE_ARRAY
    assert driver.cuMemcpy3DBatchAsync(1, [what], 0, stream)[0] == R.CUDA_ERROR_INVALID_VALUE


def test_a_batch_of_boxes_counts_in_texels_where_there_is_an_array(stream):
    shape = driver.CUDA_ARRAY3D_DESCRIPTOR()
    shape.Width, shape.Height, shape.NumChannels = 4, 4, 2
    shape.Format = driver.CUarray_format.CU_AD_FORMAT_UNSIGNED_INT16
    array, image = ok(driver.cuArray3DCreate(shape)), cube(1, 3, 16)
    memory = ok(driver.cuMemAlloc(64))
    ok(driver.cuMemcpyHtoD(memory, image.ctypes.data, 48))
    what = driver.CUDA_MEMCPY3D_BATCH_OP()
    what.src.type = driver.CUmemcpy3DOperandType.CU_MEMCPY_OPERAND_TYPE_POINTER
    what.src.op.ptr.ptr, what.src.op.ptr.rowLength = memory, 4
    what.dst.type = driver.CUmemcpy3DOperandType.CU_MEMCPY_OPERAND_TYPE_ARRAY
    what.dst.op.array.array = array
    what.dst.op.array.offset.x, what.dst.op.array.offset.y = 1, 2
    what.extent.width, what.extent.height, what.extent.depth = 3, 2, 1
    what.srcAccessOrder = ORDER.CU_MEMCPY_SRC_ACCESS_ORDER_STREAM
    ok(driver.cuMemcpy3DBatchAsync(1, [what], 0, stream))
    back = np.zeros((1, 2, 12), np.uint8)
    home = box(
        (KIND.CU_MEMORYTYPE_ARRAY, 0, 0, 0, 4, 2, 0),
        (HOST, back.ctypes.data, 12, 2, 0, 0, 0),
        12,
        2,
        1,
    )
    home.srcArray = array
    ok(driver.cuMemcpy3DAsync(home, stream))
    assert (back == image[:, :2, :12]).all()
    what.extent.height = 3
    assert driver.cuMemcpy3DBatchAsync(1, [what], 0, stream)[0] == R.CUDA_ERROR_INVALID_VALUE


def test_pageable_memory_that_is_gone_when_a_copy_runs_is_a_fault(stream):
    """As the attribute says, the copy reads in stream order, when the memory is already
    unmapped."""
    libc = ctypes.CDLL(None)
    libc.mmap.restype = ctypes.c_void_p
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    pages = libc.mmap(None, 4096, 3, 0x22, -1, 0)
    memory = ok(driver.cuMemAlloc(64))
    order = attributes(ORDER.CU_MEMCPY_SRC_ACCESS_ORDER_ANY)
    with held(stream):
        ok(
            driver.cuMemcpyBatchAsync(
                [P(int(memory))], [P(pages)], [64], 1, [order], [0], 1, stream
            )
        )
        libc.munmap(pages, 4096)
    assert driver.cuStreamSynchronize(stream)[0] == R.CUDA_ERROR_ILLEGAL_ADDRESS
    assert "no memory any more" in message(R.CUDA_ERROR_ILLEGAL_ADDRESS)


def test_rows_of_nothing_are_no_rows(context):
    """Rows without bytes copy nothing, whatever their number."""
    memory = ok(driver.cuMemAlloc(64))
    ok(driver.cuMemsetD2D8(memory, 0, 1, 0, 2**40))
    end = (DEVICE, memory, 8, 2**40, 0, 0, 0)
    ok(driver.cuMemcpy3D(box(end, end, 0, 2**40, 2**20)))
    what = driver.CUDA_MEMCPY2D()
    what.srcMemoryType = what.dstMemoryType = DEVICE
    what.srcDevice = what.dstDevice = memory
    what.Height = 2**40
    ok(driver.cuMemcpy2D(what))
    ok(driver.cuCtxSynchronize())


@given(
    st.tuples(st.integers(0, 3), st.integers(0, 20), st.integers(0, 16)),
    st.tuples(*[st.integers(0, 9)] * 4),
    st.sampled_from([1, 2, 4, 8]),
)
def test_rows_are_moved_by_row_and_by_column_alike(lengths, gaps, word):
    slices, rows, width = lengths[0], lengths[1], lengths[2] * word
    sides = []
    for gap, more in (gaps[:2], gaps[2:]):
        pitch = width + gap * word
        step = rows * pitch + more
        sides.append((step, pitch, bytearray(slices * step + 1)))
    (to_step, to_pitch, to), (of_step, of_pitch, of) = sides
    of[:] = bytes(range(1, 252)) * (len(of) // 251) + bytes(range(len(of) % 251))
    expected = bytearray(to)
    for z in range(slices):
        for y in range(rows):
            first, start = z * to_step + y * to_pitch, z * of_step + y * of_pitch
            expected[first : first + width] = of[start : start + width]
    target, source = ((ctypes.c_char * len(each)).from_buffer(each) for each in (to, of))
    move_rows(
        ctypes.addressof(target), ctypes.addressof(source), (slices, rows, width),
        (to_step, to_pitch), (of_step, of_pitch),
    )  # fmt: skip
    assert to == expected
