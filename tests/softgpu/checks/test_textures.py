"""Checks see the accesses of kernels through texture and surface objects."""

from __future__ import annotations

import numpy as np
import pytest
from cuda.bindings import driver
from helpers.driver import texture_objects
from helpers.driver.call_results import ok

import cudasync as cs
from cudasync.testing import check

pytestmark = pytest.mark.lazy

READS = "tex.1d.v4.f32.s32 {%r0, %r1, %r2, %r3}, [%object, {%i0}];"
WRITES = "sust.b.1d.b32.trap [%object, {%i0}], {%i0};"


def launched(kernel, handle, memory, stream):
    arguments = np.array([memory, int(handle), memory + 64], np.uint64)
    places = np.array([arguments.ctypes.data + 8 * n for n in range(3)], np.uint64)
    ok(driver.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, places.ctypes.data, 0))


def kernel_of(body):
    module = ok(driver.cuModuleLoadData(texture_objects.kernel_text(body).encode()))
    return ok(driver.cuModuleGetFunction(module, b"fetch"))


def test_a_fetch_and_a_store_of_two_streams_race_and_an_unwritten_texel_is_found():
    cs.Device(0).synchronize()
    raw = np.zeros((1, 1, 8, 1), np.float32)
    reads, writes = kernel_of(READS), kernel_of(WRITES)
    streams = [ok(driver.cuStreamCreate(1)) for _ in range(2)]
    memory = [int(ok(driver.cuMemAlloc(128))) for _ in range(2)]
    for each in memory:
        ok(driver.cuMemsetD8(each, 0, 128))
    ok(driver.cuCtxSynchronize())

    def program(*, is_ordered, is_written):
        what = driver.CUDA_ARRAY3D_DESCRIPTOR()
        what.Width, what.NumChannels, what.Flags = 8, 1, texture_objects.SURFACE
        what.Format = texture_objects.FORMATS["float32"]
        array = ok(driver.cuArray3DCreate(what))
        if is_written:
            texture_objects.upload(array, raw)
        resource = texture_objects.array_resource(array)
        surface = ok(driver.cuSurfObjectCreate(resource))
        texture = ok(driver.cuTexObjectCreate(resource, driver.CUDA_TEXTURE_DESC(), None))
        if is_written:
            launched(writes, surface, memory[0], streams[0])
        if is_ordered:
            ok(driver.cuStreamSynchronize(streams[0]))
        launched(reads, texture, memory[1], streams[1])
        ok(driver.cuCtxSynchronize())
        ok(driver.cuTexObjectDestroy(texture))
        ok(driver.cuSurfObjectDestroy(surface))
        ok(driver.cuArrayDestroy(array))

    (race,) = check(lambda: program(is_ordered=False, is_written=True), kinds=["race"])
    assert "CUDA array" in race.memory
    (early,) = check(lambda: program(is_ordered=True, is_written=False), kinds=["init"])
    assert "CUDA array" in early.memory
    assert check(lambda: program(is_ordered=True, is_written=True)) == []
