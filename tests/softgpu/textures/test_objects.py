"""Texture and surface objects: creation, description, destruction, and errors."""

from __future__ import annotations

import numpy as np
import pytest
from cuda.bindings import driver
from helpers.driver import texture_objects
from helpers.driver.call_results import held, ok, tells
from helpers.driver.texture_model import BORDER, CLAMP, MIRROR, WRAP, Texture

R = driver.CUresult
RAW = np.arange(24, dtype=np.uint8).reshape(1, 2, 3, 4)
FETCH = "tex.2d.v4.f32.s32 {%r0, %r1, %r2, %r3}, [%object, {%i0, %i1}];"


def test_a_texture_is_described_as_it_was_made(context):
    array = texture_objects.array_of(RAW, 2)
    model = Texture(
        [RAW],
        modes=(WRAP, BORDER, MIRROR),
        is_linear=True,
        is_normalised=True,
        border=(0.5, 1.0, 2.0, 3.0),
        bias=0.25,
        clamps=(1.0, 2.0),
    )
    handle = ok(
        driver.cuTexObjectCreate(
            texture_objects.array_resource(array), texture_objects.sampling_of(model), None
        )
    )
    resource = ok(driver.cuTexObjectGetResourceDesc(handle))
    assert int(resource.res.array.hArray) == int(array)
    found = ok(driver.cuTexObjectGetTextureDesc(handle))
    assert [int(mode) for mode in found.addressMode] == [WRAP, BORDER, MIRROR]
    assert (int(found.filterMode), found.flags) == (1, texture_objects.NORMALISED)
    assert list(found.borderColor) == [0.5, 1.0, 2.0, 3.0]
    assert found.mipmapLevelBias == 0.25
    assert (found.minMipmapLevelClamp, found.maxMipmapLevelClamp) == (1.0, 2.0)
    assert driver.cuTexObjectGetResourceViewDesc(handle)[0] == R.CUDA_ERROR_INVALID_VALUE
    ok(driver.cuTexObjectDestroy(handle))
    assert driver.cuTexObjectDestroy(handle)[0] == R.CUDA_ERROR_INVALID_VALUE
    assert driver.cuTexObjectGetTextureDesc(handle)[0] == R.CUDA_ERROR_INVALID_VALUE


def linear(memory, size, *, code="float32", channels=1):
    what = driver.CUDA_RESOURCE_DESC()
    what.resType = driver.CUresourcetype.CU_RESOURCE_TYPE_LINEAR
    of = what.res.linear
    of.devPtr, of.sizeInBytes = int(memory), size
    of.format, of.numChannels = texture_objects.FORMATS[code], channels
    return what


def pitched(memory, width, height, pitch):
    what = driver.CUDA_RESOURCE_DESC()
    what.resType = driver.CUresourcetype.CU_RESOURCE_TYPE_PITCH2D
    of = what.res.pitch2D
    of.devPtr, of.width, of.height, of.pitchInBytes = int(memory), width, height, pitch
    of.format, of.numChannels = texture_objects.FORMATS["float32"], 1
    return what


PLAIN = Texture([RAW])


def refused(said, resource, model=PLAIN):
    code = driver.cuTexObjectCreate(resource, texture_objects.sampling_of(model), None)[0]
    assert code == R.CUDA_ERROR_INVALID_VALUE
    assert tells(code, said)


def test_what_no_texture_can_be_of_is_refused(context):
    memory = int(ok(driver.cuMemAlloc(1024)))
    refused("pass the end", linear(memory, 2048))
    refused("1 to", linear(memory, 3))
    refused("1, 2 or 4 channels", linear(memory, 1024, channels=3))
    number = driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT
    alignment = ok(driver.cuDeviceGetAttribute(number, 0))
    assert memory % alignment == 0
    for offset in (16, alignment // 2):
        refused("not aligned", linear(memory + offset, 64))
    refused("pitch", pitched(memory, 8, 4, 24))
    number = driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT
    pitch = ok(driver.cuDeviceGetAttribute(number, 0))
    refused("pitch", pitched(memory, 8, 4, pitch + pitch // 4))
    sampling = texture_objects.sampling_of(PLAIN)
    ok(driver.cuTexObjectCreate(pitched(memory, 8, 4, 2 * pitch), sampling, None))
    refused("pass the end", pitched(memory, 8, 64, 32))
    array = texture_objects.array_of(RAW, 2)
    ok(driver.cuArrayDestroy(array))
    refused("not a live CUDA array", texture_objects.array_resource(array))


def test_what_no_texture_can_be_read_by_is_refused(context):
    resource = texture_objects.array_resource(texture_objects.array_of(RAW, 2))
    refused("be filtered", resource, Texture([RAW], is_linear=True, reads_integers=True))
    levels = [np.zeros((1, n, n, 1), np.float32) for n in (4, 2)]
    mipmap = texture_objects.mipmap_resource(texture_objects.mipmapped_of(levels, 2))
    refused("normalised", mipmap, Texture(levels))


def fetching():
    """A kernel that fetches, and the line of its fetch."""
    text = texture_objects.kernel_text(FETCH)
    line = text.splitlines().index(f"    {FETCH}") + 1
    module = ok(driver.cuModuleLoadData(text.encode()))
    return ok(driver.cuModuleGetFunction(module, b"fetch")), line


def launch(handle, stream=0, *, count=1, kernel=None):
    """Enqueue a kernel that fetches; return the line of its fetch and the address of its
    results."""
    function, line = kernel or fetching()
    memory = int(ok(driver.cuMemAlloc(128)))
    ok(driver.cuMemsetD8(memory, 0, 128))
    arguments = np.array([memory, int(handle), memory + 64], np.uint64)
    places = np.array([arguments.ctypes.data + 8 * n for n in range(3)], np.uint64)
    ok(driver.cuLaunchKernel(function, 1, 1, 1, count, 1, 1, 0, stream, places.ctypes.data, 0))
    return line, memory


@pytest.mark.loses_device
@pytest.mark.parametrize("what", ["a number", "a surface", "an ended one", "its array", "memory"])
def test_a_handle_of_nothing_is_an_illegal_access_of_the_fetch(context, what):
    array = texture_objects.array_of(RAW, 2, texture_objects.SURFACE)
    resource = texture_objects.array_resource(array)
    handle = ok(driver.cuTexObjectCreate(resource, texture_objects.sampling_of(PLAIN), None))
    match what:
        case "a number":
            handle = 0
        case "a surface":
            handle = ok(driver.cuSurfObjectCreate(resource))
        case "an ended one":
            ok(driver.cuTexObjectDestroy(handle))
        case "its array":
            ok(driver.cuArrayDestroy(array))
        case _:
            memory = ok(driver.cuMemAlloc(64))
            of = texture_objects.sampling_of(PLAIN)
            handle = ok(driver.cuTexObjectCreate(pitched(memory, 8, 2, 32), of, None))
            ok(driver.cuMemFree(memory))
    line, _ = launch(handle)
    code = driver.cuCtxSynchronize()[0]
    assert code == R.CUDA_ERROR_ILLEGAL_ADDRESS
    assert tells(code, f"PTX line {line},")


def test_a_kernel_that_was_launched_may_use_what_is_destroyed_later(context):
    handle, _ = texture_objects.texture_of([RAW], 2)
    _, memory = launch(handle)
    ok(driver.cuTexObjectDestroy(handle))
    found = np.zeros(4, np.float32)
    ok(driver.cuMemcpyDtoH(found.ctypes.data, memory, 16))
    assert (found == np.arange(4, dtype=np.float32) / np.float32(255)).all()


def test_destroying_ends_no_capture(context):
    handle, _ = texture_objects.texture_of([RAW], 2)
    stream = ok(driver.cuStreamCreate(0))
    mode = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL
    ok(driver.cuStreamBeginCapture(stream, mode))
    ok(driver.cuTexObjectDestroy(handle))
    ok(driver.cuStreamEndCapture(stream))


def test_a_texture_reads_what_the_array_holds_when_the_kernel_runs(context):
    stream = ok(driver.cuStreamCreate(1))
    array = texture_objects.array_of(RAW, 2)
    of = texture_objects.array_resource(array)
    handle = ok(driver.cuTexObjectCreate(of, texture_objects.sampling_of(PLAIN), None))
    # A driver loads a module only once the device is idle.
    kernel = fetching()
    with held(stream):
        _, memory = launch(handle, stream, kernel=kernel)
        texture_objects.upload(array, np.full_like(RAW, 255))
    found = np.zeros(4, np.float32)
    ok(driver.cuMemcpyDtoHAsync(found.ctypes.data, memory, 16, stream))
    ok(driver.cuStreamSynchronize(stream))
    assert (found == 1).all()


def test_a_view_is_of_some_levels_and_another_format(context, by):
    levels = [np.full((1, n, n, 2), level, np.uint16) for level, n in enumerate((8, 4, 2))]
    view = driver.CUDA_RESOURCE_VIEW_DESC()
    view.format = driver.CUresourceViewFormat.CU_RES_VIEW_FORMAT_UINT_1X32
    view.width, view.height = 8, 8
    view.firstMipmapLevel, view.lastMipmapLevel = 1, 2
    resource = texture_objects.mipmap_resource(texture_objects.mipmapped_of(levels, 2))
    sampling = texture_objects.sampling_of(
        Texture(levels, is_normalised=True, reads_integers=True, clamps=(0.0, 4.0))
    )
    handle = ok(driver.cuTexObjectCreate(resource, sampling, view))
    found = ok(driver.cuTexObjectGetResourceViewDesc(handle))
    assert (found.firstMipmapLevel, found.lastMipmapLevel) == (1, 2)
    body = "tex.level.2d.v4.s32.f32 {%r0, %r1, %r2, %r3}, [%object, {%f0, %f0}], %f1;"
    points = np.zeros(2, texture_objects.POINT)
    points["f"][:, 1] = 0, 1
    words = texture_objects.run(body, handle, points, by=by)[:, 0]
    assert words.tolist() == [0x0001_0001, 0x0002_0002]
    view.format = driver.CUresourceViewFormat.CU_RES_VIEW_FORMAT_UINT_1X16
    assert driver.cuTexObjectCreate(resource, sampling, view)[0] == R.CUDA_ERROR_INVALID_VALUE


def test_ended_contexts_take_their_objects_along(context):
    handle, _ = texture_objects.texture_of([RAW], 2, modes=(CLAMP,) * 3)
    ok(driver.cuCtxDestroy(context))
    ok(driver.cuCtxSetCurrent(ok(driver.cuDevicePrimaryCtxRetain(0))))
    assert driver.cuTexObjectDestroy(handle)[0] == R.CUDA_ERROR_INVALID_VALUE
