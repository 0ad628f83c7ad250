"""References of old PTX: textures and surfaces that a module names and the driver binds."""

from __future__ import annotations

import numpy as np
import pytest
from cuda.bindings import driver
from helpers.driver import texture_objects
from helpers.driver.call_results import ok, tells
from helpers.driver.texture_model import CLAMP, WRAP, Texture

R = driver.CUresult
RAW = np.arange(24, dtype=np.uint8).reshape(1, 2, 3, 4)
DECLARED = ".global .texref image;\n.global .surfref plane;\n.global .b64 number;"
FETCH = "tex.2d.v4.f32.f32 {%r0, %r1, %r2, %r3}, [image, {%f0, %f1}];"


@pytest.fixture
def module(context):
    text = texture_objects.kernel_text(
        FETCH + "suld.b.2d.b32.zero {%i5}, [plane, {%i0, %i1}]; add.u32 %r0, %r0, %i5;", DECLARED
    )
    return ok(driver.cuModuleLoadData(text.encode()))


@pytest.fixture
def image(module):
    return ok(driver.cuModuleGetTexRef(module, b"image"))


@pytest.fixture
def plane(module):
    return ok(driver.cuModuleGetSurfRef(module, b"plane"))


def fetched(module, points):
    """The kernel's result for each point, or its error code."""
    function = ok(driver.cuModuleGetFunction(module, b"fetch"))
    out, given = (ok(driver.cuMemAlloc(n * len(points))) for n in (16, 64))
    ok(driver.cuMemcpyHtoD(given, points.ctypes.data, points.nbytes))
    arguments = np.array([int(out), 0, int(given)], np.uint64)
    places = np.array([arguments.ctypes.data + 8 * n for n in range(3)], np.uint64)
    count = len(points)
    ok(driver.cuLaunchKernel(function, 1, 1, 1, count, 1, 1, 0, 0, places.ctypes.data, 0))
    code = driver.cuCtxSynchronize()[0]
    if code:
        return code
    found = np.zeros((count, 4), np.float32)
    ok(driver.cuMemcpyDtoH(found.ctypes.data, out, found.nbytes))
    return found


def test_a_reference_reads_what_it_is_bound_to(module, image, plane):
    random = np.random.default_rng(1)
    model = Texture([RAW], modes=(WRAP, CLAMP, CLAMP), is_linear=True, is_normalised=True)
    array = texture_objects.array_of(RAW, 2)
    ok(driver.cuTexRefSetFilterMode(image, driver.CUfilter_mode.CU_TR_FILTER_MODE_LINEAR))
    ok(driver.cuTexRefSetAddressMode(image, 1, driver.CUaddress_mode.CU_TR_ADDRESS_MODE_CLAMP))
    ok(driver.cuTexRefSetFlags(image, texture_objects.NORMALISED))
    ok(driver.cuTexRefSetArray(image, array, 1))
    surface = texture_objects.array_of(np.zeros((1, 2, 2, 1), np.int32), 2, texture_objects.SURFACE)
    ok(driver.cuSurfRefSetArray(plane, surface, 0))
    points = texture_objects.points(random, 64, (3, 2), is_normalised=True)[:-3]
    points["i"] = 0
    assert (fetched(module, points) == model.sample(points["f"].T[:2])).all()
    # After the reference is bound to other memory, the kernel reads that memory.
    memory = ok(driver.cuMemAlloc(256))
    ok(driver.cuMemsetD32(memory, 0x40400000, 64))
    what = driver.CUDA_ARRAY_DESCRIPTOR()
    what.Width, what.Height, what.NumChannels = 8, 2, 1
    what.Format = texture_objects.FORMATS["float32"]
    ok(driver.cuTexRefSetAddress2D(image, what, memory, 32))
    assert (fetched(module, points)[:, 0] == 3).all()


def test_what_was_launched_reads_what_was_bound_then(module, image, plane):
    surface = texture_objects.array_of(np.zeros((1, 2, 2, 1), np.int32), 2, texture_objects.SURFACE)
    ok(driver.cuSurfRefSetArray(plane, surface, 0))
    arrays = [texture_objects.array_of(np.full_like(RAW, value), 2) for value in (255, 0)]
    function = ok(driver.cuModuleGetFunction(module, b"fetch"))
    memory = int(ok(driver.cuMemAlloc(128)))
    ok(driver.cuMemsetD8(memory, 0, 128))
    arguments = np.array([memory, 0, memory + 64], np.uint64)
    places = np.array([arguments.ctypes.data + 8 * n for n in range(3)], np.uint64)
    ok(driver.cuTexRefSetArray(image, arrays[0], 1))
    ok(driver.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, 0, places.ctypes.data, 0))
    ok(driver.cuTexRefSetArray(image, arrays[1], 1))
    found = np.zeros(4, np.float32)
    ok(driver.cuMemcpyDtoH(found.ctypes.data, memory, 16))
    assert (found == 1).all()


@pytest.mark.loses_device
def test_a_reference_that_is_not_bound_is_an_illegal_access(module):
    code = fetched(module, np.zeros(1, texture_objects.POINT))
    assert code == R.CUDA_ERROR_ILLEGAL_ADDRESS
    assert tells(code, "fetch")


def test_settings_are_given_back(module, image, plane):
    array = texture_objects.array_of(RAW, 2, texture_objects.SURFACE)
    ok(driver.cuTexRefSetArray(image, array, 1))
    assert int(ok(driver.cuTexRefGetArray(image))) == int(array)
    assert ok(driver.cuTexRefGetFormat(image)) == (texture_objects.FORMATS["uint8"], 4)
    ok(driver.cuTexRefSetMipmapLevelClamp(image, 0.5, 2.5))
    assert ok(driver.cuTexRefGetMipmapLevelClamp(image)) == (0.5, 2.5)
    ok(driver.cuTexRefSetMipmapLevelBias(image, 1.25))
    assert ok(driver.cuTexRefGetMipmapLevelBias(image)) == 1.25
    ok(driver.cuTexRefSetMaxAnisotropy(image, 4))
    assert ok(driver.cuTexRefGetMaxAnisotropy(image)) == 4
    ok(driver.cuTexRefSetFlags(image, texture_objects.NORMALISED))
    assert ok(driver.cuTexRefGetFlags(image)) == texture_objects.NORMALISED
    assert driver.cuTexRefGetAddressMode(image, 3)[0] == R.CUDA_ERROR_INVALID_VALUE
    ok(driver.cuSurfRefSetArray(plane, array, 0))
    assert int(ok(driver.cuSurfRefGetArray(plane))) == int(array)
    memory = ok(driver.cuMemAlloc(512))
    assert ok(driver.cuTexRefSetAddress(image, int(memory) + 16, 64)) == 16
    assert int(ok(driver.cuTexRefGetAddress(image))) == int(memory)
    assert driver.cuTexRefGetArray(image)[0] == R.CUDA_ERROR_INVALID_VALUE


def test_only_references_are_found_and_they_end_with_their_module(module, image, plane):
    assert int(ok(driver.cuModuleGetTexRef(module, b"image"))) == int(image)
    for name in (b"plane", b"number", b"nothing"):
        assert driver.cuModuleGetTexRef(module, name)[0] == R.CUDA_ERROR_NOT_FOUND
    assert driver.cuModuleGetSurfRef(module, b"image")[0] == R.CUDA_ERROR_NOT_FOUND
    other = ok(driver.cuTexRefCreate())
    ok(driver.cuTexRefDestroy(other))
    assert driver.cuTexRefDestroy(other)[0] == R.CUDA_ERROR_INVALID_VALUE
    ok(driver.cuModuleUnload(module))
    assert driver.cuTexRefGetFlags(image)[0] == R.CUDA_ERROR_INVALID_VALUE
