"""Arrays, objects and kernels for texture tests, through the real cuda.bindings."""

from __future__ import annotations

import functools

import numpy as np
from cuda.bindings import driver
from helpers.driver.call_results import ok
from helpers.driver.texture_model import Texture
from helpers.lowering.bare_launch import aligned, pack

from cudasync.ptx import parse
from cudasync.softgpu.interface.launch import AllocationSnapshot, Launch, OutcomeKind
from cudasync.softgpu.oracle import compile_module

F = driver.CUarray_format
KIND = driver.CUmemorytype
LAYERED, SURFACE, CUBEMAP, GATHER = 1, 2, 4, 8
READ_AS_INTEGER, NORMALISED, SRGB = 1, 2, 0x10
FORMATS = {
    "uint8": F.CU_AD_FORMAT_UNSIGNED_INT8,
    "uint16": F.CU_AD_FORMAT_UNSIGNED_INT16,
    "uint32": F.CU_AD_FORMAT_UNSIGNED_INT32,
    "int8": F.CU_AD_FORMAT_SIGNED_INT8,
    "int16": F.CU_AD_FORMAT_SIGNED_INT16,
    "int32": F.CU_AD_FORMAT_SIGNED_INT32,
    "float16": F.CU_AD_FORMAT_HALF,
    "float32": F.CU_AD_FORMAT_FLOAT,
}
# The input of a thread: floats, then integers.
POINT = np.dtype([("f", np.float32, 10), ("i", np.int32, 6)])

_KERNEL = """
.version 8.0
.target sm_80
.address_size 64
{declared}
.visible .entry fetch(.param .u64 out, .param .u64 object, .param .u64 points)
{{
    .reg .f32 %f<10>;
    .reg .b32 %i<6>, %r<4>, %t_index, %t_block, %t_size;
    .reg .b16 %h<4>;
    .reg .b64 %object, %d<4>, %rd_out, %rd_points, %rd_offset;
    .reg .pred %p;

    mov.u32 %t_index, %tid.x;
    mov.u32 %t_block, %ctaid.x;
    mov.u32 %t_size, %ntid.x;
    mad.lo.u32 %t_index, %t_block, %t_size, %t_index;
    ld.param.u64 %rd_out, [out];
    ld.param.u64 %object, [object];
    ld.param.u64 %rd_points, [points];
    mad.wide.u32 %rd_points, %t_index, 64, %rd_points;
    mad.wide.u32 %rd_out, %t_index, 16, %rd_out;
{loads}
    mov.b32 %r0, 0;
    mov.b32 %r1, 0;
    mov.b32 %r2, 0;
    mov.b32 %r3, 0;
    {body}
    st.global.v4.b32 [%rd_out], {{%r0, %r1, %r2, %r3}};
    ret;
}}
"""
_LOADS = "".join(
    [f"    ld.global.f32 %f{n}, [%rd_points+{4 * n}];\n" for n in range(10)]
    + [f"    ld.global.b32 %i{n}, [%rd_points+{40 + 4 * n}];\n" for n in range(6)]
)


def kernel_text(body, declared=""):
    """A kernel. Its threads get their own %f0.. and %i0.., and return %r0 to %r3."""
    return _KERNEL.format(body=body, loads=_LOADS, declared=declared)


@functools.cache
def _scalar(text):
    return compile_module(parse(text), memcheck=True)


# Objects, arrays and arrays of the tests: one allocation for the scalar lowering.
_EVERYWHERE = AllocationSnapshot([(4096, 2**47)])


SCALAR, VECTOR, BOTH = "scalar", "vector", "both"


def run(body, handle, points, *, by=BOTH):
    """The result of each point, as (points, 4) words. With both lowerings, they must agree."""
    text = kernel_text(body)
    count = len(points)
    size = min(64, count)
    padded = aligned(np.zeros(-(-count // size) * size, POINT))
    padded[:count] = points
    answers = []
    if by != SCALAR:
        answers.append(_by_driver(text, handle, padded, size))
    if by != VECTOR:
        found = aligned(np.zeros((len(padded), 4), np.uint32))
        kernel = _scalar(text).kernels["fetch"]
        block = pack(kernel, [found, int(handle), padded])
        ok(driver.cuCtxSynchronize())
        launch = Launch((len(padded) // size, 1, 1), (size, 1, 1), 0, block, [], _EVERYWHERE)
        outcome = kernel.start(launch).run()
        assert outcome.kind is OutcomeKind.DONE, outcome
        answers.append(found)
    assert (answers[0] == answers[-1]).all()
    return answers[0][:count]


def _by_driver(text, handle, points, size):
    module = ok(driver.cuModuleLoadData(text.encode()))
    function = ok(driver.cuModuleGetFunction(module, b"fetch"))
    out, given = (ok(driver.cuMemAlloc(n * len(points))) for n in (16, 64))
    ok(driver.cuMemcpyHtoD(given, points.ctypes.data, points.nbytes))
    arguments = np.array([int(out), int(handle), int(given)], np.uint64)
    places = np.array([arguments.ctypes.data + 8 * n for n in range(3)], np.uint64)
    grid = len(points) // size
    ok(driver.cuLaunchKernel(function, grid, 1, 1, size, 1, 1, 0, 0, places.ctypes.data, 0))
    found = np.zeros((len(points), 4), np.uint32)
    ok(driver.cuMemcpyDtoH(found.ctypes.data, out, found.nbytes))
    ok(driver.cuMemFree(out))
    ok(driver.cuMemFree(given))
    ok(driver.cuModuleUnload(module))
    return found


def array_of(raw, dimensions, flags=0):
    """An array with these texels: (slices, rows, width, channels)."""
    what = driver.CUDA_ARRAY3D_DESCRIPTOR()
    slices, rows, what.Width, what.NumChannels = raw.shape
    what.Height = rows if dimensions > 1 else 0
    what.Depth = slices if dimensions > 2 or flags & (LAYERED | CUBEMAP) else 0
    what.Format, what.Flags = FORMATS[raw.dtype.name], flags
    array = ok(driver.cuArray3DCreate(what))
    upload(array, raw)
    return array


def mipmapped_of(levels, dimensions, flags=0):
    """A mipmapped array with these levels."""
    what = driver.CUDA_ARRAY3D_DESCRIPTOR()
    slices, rows, what.Width, what.NumChannels = levels[0].shape
    what.Height = rows if dimensions > 1 else 0
    what.Depth = slices if dimensions > 2 or flags & (LAYERED | CUBEMAP) else 0
    what.Format, what.Flags = FORMATS[levels[0].dtype.name], flags
    mipmap = ok(driver.cuMipmappedArrayCreate(what, len(levels)))
    for number, raw in enumerate(levels):
        upload(ok(driver.cuMipmappedArrayGetLevel(mipmap, number)), raw)
    return mipmap


def upload(array, raw, *, back=False):
    """Copy (slices, rows, width, channels) to an array, or back from it."""
    slices, rows, width, channels = raw.shape
    row = width * channels * raw.itemsize
    what = driver.CUDA_MEMCPY3D()
    host, there = ("dst", "src") if back else ("src", "dst")
    setattr(what, f"{host}MemoryType", KIND.CU_MEMORYTYPE_HOST)
    setattr(what, f"{host}Host", raw.ctypes.data)
    setattr(what, f"{host}Pitch", row)
    setattr(what, f"{host}Height", rows)
    setattr(what, f"{there}MemoryType", KIND.CU_MEMORYTYPE_ARRAY)
    setattr(what, f"{there}Array", array)
    what.WidthInBytes, what.Height, what.Depth = row, rows, slices
    ok(driver.cuMemcpy3D(what))


def array_resource(array):
    what = driver.CUDA_RESOURCE_DESC()
    what.resType = driver.CUresourcetype.CU_RESOURCE_TYPE_ARRAY
    what.res.array.hArray = array
    return what


def mipmap_resource(mipmap):
    what = driver.CUDA_RESOURCE_DESC()
    what.resType = driver.CUresourcetype.CU_RESOURCE_TYPE_MIPMAPPED_ARRAY
    what.res.mipmap.hMipmappedArray = mipmap
    return what


def sampling_of(model):
    """The CUDA_TEXTURE_DESC of a model."""
    what = driver.CUDA_TEXTURE_DESC()
    what.addressMode = [driver.CUaddress_mode(mode) for mode in model.modes]
    what.filterMode = driver.CUfilter_mode(int(model.is_linear))
    what.mipmapFilterMode = driver.CUfilter_mode(int(model.blends_levels))
    what.flags = NORMALISED * model.is_normalised | READ_AS_INTEGER * model.reads_integers
    what.flags |= SRGB * model.is_srgb
    what.borderColor = list(model.border)
    what.mipmapLevelBias = model.bias
    what.minMipmapLevelClamp, what.maxMipmapLevelClamp = model.clamps
    return what


def texture_of(levels, dimensions, *, flags=0, **sampling):
    """A texture object, and its model."""
    model = Texture(levels, is_cube=bool(flags & CUBEMAP), **sampling)
    if len(levels) > 1:
        resource = mipmap_resource(mipmapped_of(levels, dimensions, flags))
    else:
        resource = array_resource(array_of(levels[0], dimensions, flags))
    return ok(driver.cuTexObjectCreate(resource, sampling_of(model), None)), model


def texels(random, dtype, shape):
    """Random texels, including both ends of their range."""
    dtype = np.dtype(dtype)
    if dtype.kind == "f":
        return random.standard_normal(shape).astype(dtype)
    ends = np.iinfo(dtype)
    found = random.integers(ends.min, ends.max, shape, dtype, endpoint=True)
    found.flat[:2] = ends.min, ends.max
    return found


def points(random, count, size, *, is_normalised):
    """Points in and around a texture of `size`: (x, y, z), on a grid of 1/512 of a texel."""
    found = np.zeros(count, POINT)
    for axis, length in enumerate(size):
        at = random.integers(-2 * length * 512, 3 * length * 512, count) / 512
        at[: count // 4] = np.round(at[: count // 4])
        found["f"][:, axis] = at / length if is_normalised else at
        found["i"][:, axis] = random.integers(-length, 2 * length, count)
    found["f"][-3:, 0] = np.inf, -np.inf, 1e30
    return found
