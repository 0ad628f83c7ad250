"""suld, sust and sured: bytes of arrays, and accesses outside of them."""

from __future__ import annotations

import numpy as np
import pytest
from cuda.bindings import driver
from helpers.driver import texture_objects
from helpers.driver.call_results import ok, tells

R = driver.CUresult


def surface_of(raw, dimensions, flags=0):
    """A surface object on an array with these texels, and the array."""
    array = texture_objects.array_of(raw, dimensions, flags | texture_objects.SURFACE)
    return ok(driver.cuSurfObjectCreate(texture_objects.array_resource(array))), array


def held_by(array, like):
    """The current content of an array."""
    found = np.zeros_like(like)
    texture_objects.upload(array, found, back=True)
    return found


def points_at(*columns):
    points = np.zeros(len(columns[0]), texture_objects.POINT)
    for number, column in enumerate(columns):
        points["i"][:, number] = column
    return points


# geometry: number of dimensions, whether it is layered (the layer comes first), and coordinates.
WHERE = {
    "1d": (1, False, "%i0"),
    "2d": (2, False, "%i0, %i1"),
    "3d": (3, False, "%i0, %i1, %i2, %i2"),
    "a1d": (1, True, "%i2, %i0"),
    "a2d": (2, True, "%i2, %i0, %i1, %i1"),
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("beyond", ["clamp", "zero"])
@pytest.mark.parametrize("bits", [32, 8, 16, 64])
@pytest.mark.parametrize("geometry", WHERE)
def test_loads_of_every_width(context, by, geometry, bits, beyond):
    dimensions, has_layers, where = WHERE[geometry]
    random = np.random.default_rng(3)
    shape = [3 if dimensions == 3 or has_layers else 1, 4 if dimensions > 1 else 1, 6]
    channels, dtype = {8: (1, "uint8"), 16: (1, "int16"), 32: (4, "uint8"), 64: (2, "float32")}[
        bits
    ]
    raw = texture_objects.texels(random, dtype, (*shape, channels))
    handle, _ = surface_of(raw, dimensions, texture_objects.LAYERED * has_layers)
    size = bits // 8
    x, y, z = (random.integers(-1, n + 1, 64) for n in shape[::-1])
    places = points_at(x * size, y, z)
    target = {8: "%h0", 16: "%h0", 32: "%r0", 64: "%d0"}[bits]
    then = {
        8: "cvt.u32.u16 %r0, %h0;",
        16: "cvt.u32.u16 %r0, %h0;",
        32: "",
        64: "mov.b64 {%r0, %r1}, %d0;",
    }[bits]
    body = f"suld.b.{geometry}.b{bits}.{beyond} {{{target}}}, [%object, {{{where}}}]; {then}"
    found = texture_objects.run(body, handle, places, by=by)
    texel = raw.view(np.uint8).reshape(*shape, size)
    if dimensions < 2:
        y[:] = 0
    if dimensions < 3 and not has_layers:
        z[:] = 0
    inside = [np.clip(at, 0, n - 1) for at, n in zip((z, y, x), shape, strict=True)]
    expected = np.zeros((64, 16), np.uint8)
    expected[:, :size] = texel[tuple(inside)]
    if beyond == "zero":
        is_out = (inside[0] != z) | (inside[1] != y) | (inside[2] != x)
        assert is_out.any()
        expected[is_out] = 0
    assert (found == expected.view(np.uint32)).all()


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("form", "given"),
    [("v4.b32", "%i0, %i1, %i2, %i3"), ("v2.b16", "%h0, %h1"), ("v2.b64", "%d0, %d1")],
)
def test_vectors_are_stored_and_loaded(context, by_one, form, given):
    size = {"v4.b32": 16, "v2.b16": 4, "v2.b64": 16}[form]
    raw = np.zeros((1, 2, 8, 1), np.float32 if size == 4 else np.int32).repeat(size // 4, 3)
    handle, array = surface_of(raw, 2)
    x, y = np.arange(16) % 8, np.arange(16) // 8
    places = points_at(x * 11 + 5, x * 7, x * 3 - 20, y, x * size, y)
    halves = "cvt.u16.u32 %h0, %i0; cvt.u16.u32 %h1, %i1;"
    wides = "mov.b64 %d0, {%i0, %i1}; mov.b64 %d1, {%i2, %i3};"
    body = f"{halves} {wides} sust.b.2d.{form}.trap [%object, {{%i4, %i5}}], {{{given}}};"
    texture_objects.run(body, handle, places, by=by_one)
    words = places["i"][:, :4].astype(np.uint32)
    if form == "v2.b16":
        words = (words[:, :1] & 0xFFFF) | words[:, 1:2] << 16
    assert (held_by(array, raw).view(np.uint32).reshape(16, -1) == words).all()


def test_what_is_stored_beyond_is_dropped_or_moved_to_the_edge(context, by_one):
    raw = np.full((1, 2, 4, 1), 9, np.int32)
    for beyond, row in (("zero", [9, 9, 9, 9]), ("clamp", [-1, 9, 9, 4])):
        handle, array = surface_of(raw, 2)
        body = f"sust.b.2d.b32.{beyond} [%object, {{%i0, %i1}}], {{%i2}};"
        texture_objects.run(body, handle, points_at([-4, 16], [0, 0], [-1, 4]), by=by_one)
        assert held_by(array, raw)[0, 0, :, 0].tolist() == row


@pytest.mark.loses_device
def test_an_access_beyond_traps(context):
    handle, _ = surface_of(np.zeros((1, 2, 4, 1), np.int32), 2)
    text = texture_objects.kernel_text("suld.b.2d.b32.trap {%r0}, [%object, {%i0, %i1}];")
    line = text.splitlines().index("    suld.b.2d.b32.trap {%r0}, [%object, {%i0, %i1}];") + 1
    module = ok(driver.cuModuleLoadData(text.encode()))
    function = ok(driver.cuModuleGetFunction(module, b"fetch"))
    memory = ok(driver.cuMemAlloc(128))
    points = points_at([16], [0])
    ok(driver.cuMemcpyHtoD(int(memory) + 64, points.ctypes.data, 64))
    arguments = np.array([int(memory), int(handle), int(memory) + 64], np.uint64)
    places = np.array([arguments.ctypes.data + 8 * n for n in range(3)], np.uint64)
    ok(driver.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, 0, places.ctypes.data, 0))
    code = driver.cuCtxSynchronize()[0]
    assert code == R.CUDA_ERROR_LAUNCH_FAILED
    assert tells(code, f"PTX line {line},")


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("form", "expected"),
    [("b.add.2d.u32", 120), ("p.max.2d.s32", 15), ("b.min.2d.s32", -3), ("b.or.2d.b32", 15)],
)
def test_threads_combine_what_is_there(context, by_one, form, expected):
    raw = np.full((1, 2, 4, 1), 0, np.int32)
    raw[0, 1, 2] = -3 if "min" in form else 0
    handle, array = surface_of(raw, 2)
    scale = 1 if form.startswith("p") else 4
    body = f"sured.{form}.trap [%object, {{%i0, %i1}}], %i2;"
    places = points_at([2 * scale] * 16, [1] * 16, range(16))
    texture_objects.run(body, handle, places, by=by_one)
    found = held_by(array, raw)
    assert found[0, 1, 2, 0] == expected
    found[0, 1, 2, 0] = 0
    assert not found.any()


def test_what_a_surface_is_can_be_asked(context, by):
    handle, _ = surface_of(np.zeros((3, 5, 6, 4), np.uint8), 3)
    body = "".join(
        f"suq.{n}.b32 %r{i}, [%object];" for i, n in enumerate(("width", "height", "depth"))
    )
    assert texture_objects.run(body, handle, points_at([0]), by=by)[0, :3].tolist() == [6, 5, 3]


def test_a_surface_is_of_an_array_that_was_made_for_it(context):
    plain = texture_objects.array_of(np.zeros((1, 2, 4, 1), np.int32), 2)
    code = driver.cuSurfObjectCreate(texture_objects.array_resource(plain))[0]
    assert code == R.CUDA_ERROR_INVALID_VALUE
    assert tells(code, "SURFACE_LDST")
    handle, array = surface_of(np.zeros((1, 2, 4, 1), np.int32), 2)
    found = ok(driver.cuSurfObjectGetResourceDesc(handle))
    assert int(found.res.array.hArray) == int(array)
    ok(driver.cuSurfObjectDestroy(handle))
    assert driver.cuSurfObjectDestroy(handle)[0] == R.CUDA_ERROR_INVALID_VALUE
