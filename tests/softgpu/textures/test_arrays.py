"""CUDA arrays: creation, description, destruction, and copies to and from them."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from cuda.bindings import driver
from helpers.driver.call_results import held, ok, place_driver, tells
from hypothesis import given
from hypothesis import strategies as st

R = driver.CUresult
F = driver.CUarray_format
KIND = driver.CUmemorytype
LAYERED, SURFACE, CUBEMAP = 1, 2, 4
FORMATS = {
    "u1": F.CU_AD_FORMAT_UNSIGNED_INT8,
    "u2": F.CU_AD_FORMAT_UNSIGNED_INT16,
    "u4": F.CU_AD_FORMAT_UNSIGNED_INT32,
    "i1": F.CU_AD_FORMAT_SIGNED_INT8,
    "i2": F.CU_AD_FORMAT_SIGNED_INT16,
    "i4": F.CU_AD_FORMAT_SIGNED_INT32,
    "f2": F.CU_AD_FORMAT_HALF,
    "f4": F.CU_AD_FORMAT_FLOAT,
}


def described(width, height=0, depth=0, *, format_="f4", channels=1, flags=0):
    what = driver.CUDA_ARRAY3D_DESCRIPTOR()
    what.Width, what.Height, what.Depth = width, height, depth
    what.Format, what.NumChannels, what.Flags = FORMATS[format_], channels, flags
    return what


def made(*size, **how):
    return ok(driver.cuArray3DCreate(described(*size, **how)))


def copy_3d(source, target, size, *, at=(0, 0, 0), to=(0, 0, 0), stream=None):
    """Copy between arrays and NumPy arrays of bytes (slices, rows, bytes)."""
    what = driver.CUDA_MEMCPY3D()
    for side, end, (x, y, z) in (("src", source, at), ("dst", target, to)):
        if isinstance(end, np.ndarray):
            setattr(what, f"{side}MemoryType", KIND.CU_MEMORYTYPE_HOST)
            setattr(what, f"{side}Host", end.ctypes.data)
            setattr(what, f"{side}Pitch", end.shape[2])
            setattr(what, f"{side}Height", end.shape[1])
        else:
            setattr(what, f"{side}MemoryType", KIND.CU_MEMORYTYPE_ARRAY)
            setattr(what, f"{side}Array", end)
        setattr(what, f"{side}XInBytes", x)
        setattr(what, f"{side}Y", y)
        setattr(what, f"{side}Z", z)
    what.WidthInBytes, what.Height, what.Depth = size
    if stream is not None:
        return driver.cuMemcpy3DAsync(what, stream)
    return driver.cuMemcpy3D(what)


def bytes_of(*shape):
    return np.arange(np.prod(shape), dtype=np.uint8).reshape(shape)


def test_an_array_is_described_as_it_was_made(context):
    what = described(7, 5, 3, format_="i2", channels=2, flags=LAYERED | SURFACE)
    array = ok(driver.cuArray3DCreate(what))
    found = ok(driver.cuArray3DGetDescriptor(array))
    assert (found.Width, found.Height, found.Depth) == (7, 5, 3)
    assert (found.Format, found.NumChannels, found.Flags) == (FORMATS["i2"], 2, 3)
    plain = ok(driver.cuArrayGetDescriptor(array))
    assert (plain.Width, plain.Height, plain.NumChannels) == (7, 5, 2)
    assert ok(driver.cuArrayGetMemoryRequirements(array, 0)).size >= 7 * 5 * 3 * 4
    ok(driver.cuArrayDestroy(array))
    assert driver.cuArrayDestroy(array)[0] == R.CUDA_ERROR_INVALID_HANDLE
    assert driver.cuArray3DGetDescriptor(array)[0] == R.CUDA_ERROR_INVALID_HANDLE


@pytest.mark.parametrize(
    ("what", "said"),
    [
        (described(0), "an array needs a width"),
        (described(4, channels=3), "1, 2 or 4 channels"),
        (described(4, 0, 4), "needs a height"),
        (described(200_000), "at most 131072"),
        (described(4, 5, 6, flags=CUBEMAP), "must be equal"),
        (described(4, 4, 5, flags=CUBEMAP), "a depth of 6"),
        (described(4, 4, 3000, flags=LAYERED), "layers"),
    ],
)
def test_an_array_that_can_not_be_is_refused(context, what, said):
    code = driver.cuArray3DCreate(what)[0]
    assert code == R.CUDA_ERROR_INVALID_VALUE
    assert tells(code, said)


def test_memory_of_arrays_is_counted(context):
    before = ok(driver.cuMemGetInfo())[0]
    array = made(1024, 1024)
    assert before - ok(driver.cuMemGetInfo())[0] >= 4 << 20
    ok(driver.cuArrayDestroy(array))
    assert ok(driver.cuMemGetInfo())[0] == before


@given(data=st.data())
def test_boxes_go_to_an_array_and_back(data):
    place_driver()
    height, depth = data.draw(st.sampled_from([(0, 0), (5, 0), (5, 4)]))
    format_, channels = (
        data.draw(st.sampled_from(sorted(FORMATS))),
        data.draw(st.sampled_from([1, 2, 4])),
    )
    ok(driver.cuInit(0))
    context = ok(driver.cuDevicePrimaryCtxRetain(0))
    ok(driver.cuCtxSetCurrent(context))
    texel = int(format_[1]) * channels
    shape = max(1, depth), max(1, height), 6 * texel
    image = bytes_of(*shape)
    array = made(6, height, depth, format_=format_, channels=channels)
    ok(copy_3d(image, array, shape[::-1]))
    starts = [data.draw(st.integers(0, most - 1)) for most in shape]
    sizes = [
        data.draw(st.integers(1, most - start)) for start, most in zip(starts, shape, strict=True)
    ]
    back = np.zeros(shape, np.uint8)
    ok(copy_3d(array, back, sizes[::-1], at=starts[::-1]))
    part = tuple(slice(a, a + n) for a, n in zip(starts, sizes, strict=True))
    assert (back[tuple(slice(0, n) for n in sizes)] == image[part]).all()
    starts[0] += 1 + shape[0] - sizes[0]
    assert copy_3d(array, back, sizes[::-1], at=starts[::-1])[0] == R.CUDA_ERROR_INVALID_VALUE
    ok(driver.cuArrayDestroy(array))
    ok(driver.cuDevicePrimaryCtxRelease(0))


def test_rectangles_go_to_an_array_on_a_stream_and_back(context):
    stream = ok(driver.cuStreamCreate(1))
    image, back = bytes_of(1, 6, 32)[0], np.zeros((6, 32), np.uint8)
    array = made(8, 6)
    there, home = driver.CUDA_MEMCPY2D(), driver.CUDA_MEMCPY2D()
    there.srcMemoryType, there.srcHost = KIND.CU_MEMORYTYPE_HOST, image.ctypes.data
    there.dstMemoryType, there.dstArray = KIND.CU_MEMORYTYPE_ARRAY, array
    there.srcPitch, there.WidthInBytes, there.Height = 32, 32, 6
    home.srcMemoryType, home.srcArray = KIND.CU_MEMORYTYPE_ARRAY, array
    home.srcXInBytes, home.srcY = 4, 2
    home.dstMemoryType, home.dstHost = KIND.CU_MEMORYTYPE_HOST, back.ctypes.data
    home.dstPitch, home.WidthInBytes, home.Height = 32, 28, 4
    before = image.copy()
    ok(driver.cuMemcpy2DAsync(there, stream))
    image[:] = 0  # The image is pageable, so the call has read it.
    ok(driver.cuMemcpy2DAsync(home, stream))
    assert (back[:4, :28] == before[2:, 4:]).all()
    home.srcY = 3
    assert driver.cuMemcpy2D(home)[0] == R.CUDA_ERROR_INVALID_VALUE


def test_bytes_go_to_an_array_of_one_dimension_and_back(context):
    stream = ok(driver.cuStreamCreate(0))
    source, back = np.arange(64, dtype=np.uint8), np.zeros(64, np.uint8)
    array, other = made(16), made(16)
    memory = ok(driver.cuMemAlloc(64))
    ok(driver.cuMemcpyHtoA(array, 0, source.ctypes.data, 64))
    ok(driver.cuMemcpyAtoA(other, 8, array, 0, 56))
    ok(driver.cuMemcpyAtoD(memory, other, 8, 32))
    ok(driver.cuMemcpyDtoA(array, 32, memory, 32))
    ok(driver.cuMemcpyAtoHAsync(back.ctypes.data, array, 16, 48, stream))
    assert (back[:16] == source[16:32]).all()
    assert (back[16:48] == source[:32]).all()
    ok(driver.cuMemcpyHtoAAsync(other, 0, back.ctypes.data, 48, stream))
    ok(driver.cuMemcpyAtoH(source.ctypes.data, other, 0, 48))
    assert (source[:48] == back[:48]).all()
    assert driver.cuMemcpyAtoH(back.ctypes.data, array, 60, 8)[0] == R.CUDA_ERROR_INVALID_VALUE
    assert driver.cuMemcpyAtoH(back.ctypes.data, made(4, 4), 0, 8)[0] == R.CUDA_ERROR_INVALID_VALUE


def test_levels_of_a_mipmapped_array_are_arrays(context):
    what = described(8, 4)
    mipmap = ok(driver.cuMipmappedArrayCreate(what, 4))
    sizes = []
    for level in range(4):
        array = ok(driver.cuMipmappedArrayGetLevel(mipmap, level))
        found = ok(driver.cuArray3DGetDescriptor(array))
        sizes.append((found.Width, found.Height, found.Depth))
        image = np.full((1, found.Height, 4 * found.Width), level + 1, np.uint8)
        ok(copy_3d(image, array, image.shape[::-1]))
        assert driver.cuArrayDestroy(array)[0] == R.CUDA_ERROR_INVALID_HANDLE
    assert sizes == [(8, 4, 0), (4, 2, 0), (2, 1, 0), (1, 1, 0)]
    for level, (width, height, _) in enumerate(sizes):
        back = np.zeros((1, height, 4 * width), np.uint8)
        array = ok(driver.cuMipmappedArrayGetLevel(mipmap, level))
        ok(copy_3d(array, back, back.shape[::-1]))
        assert (back == level + 1).all()
    assert driver.cuMipmappedArrayGetLevel(mipmap, 4)[0] == R.CUDA_ERROR_INVALID_VALUE
    ok(driver.cuMipmappedArrayDestroy(mipmap))
    assert driver.cuMipmappedArrayGetLevel(mipmap, 0)[0] == R.CUDA_ERROR_INVALID_HANDLE
    assert driver.cuMipmappedArrayCreate(what, 5)[0] == R.CUDA_ERROR_INVALID_VALUE


def test_a_copy_to_an_array_waits_its_turn(context):
    stream = ok(driver.cuStreamCreate(1))
    pinned = ok(driver.cuMemHostAlloc(64, 0))
    ctypes.memset(pinned, 1, 64)
    array, back = made(16), np.zeros(64, np.uint8)
    with held(stream):
        ok(driver.cuMemcpyHtoAAsync(array, 0, pinned, 64, stream))
        ctypes.memset(pinned, 2, 64)
    ok(driver.cuMemcpyAtoHAsync(back.ctypes.data, array, 0, 64, stream))
    assert (back == 2).all()


def test_a_graph_copies_to_an_array(context):
    array, image = made(4, 4), bytes_of(1, 4, 16)
    back = np.zeros((1, 4, 16), np.uint8)
    stream = ok(driver.cuStreamCreate(1))
    mode = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
    ok(driver.cuStreamBeginCapture(stream, mode))
    ok(copy_3d(image, array, (16, 4, 1), stream=stream))
    ok(copy_3d(array, back, (16, 4, 1), stream=stream))
    graph = ok(driver.cuStreamEndCapture(stream))
    (node,) = ok(driver.cuGraphGetRootNodes(graph, 1))[0]
    params = ok(driver.cuGraphMemcpyNodeGetParams(node))
    assert params.dstMemoryType == KIND.CU_MEMORYTYPE_ARRAY
    assert int(params.dstArray) == int(array)
    executable = ok(driver.cuGraphInstantiate(graph, 0))
    ok(driver.cuGraphLaunch(executable, stream))
    ok(driver.cuStreamSynchronize(stream))
    assert (back == image).all()


def test_arrays_end_with_their_context(context):
    array = made(4)
    ok(driver.cuCtxDestroy(context))
    assert driver.cuArrayDestroy(array)[0] == R.CUDA_ERROR_INVALID_HANDLE
    ok(driver.cuCtxSetCurrent(ok(driver.cuDevicePrimaryCtxRetain(0))))
