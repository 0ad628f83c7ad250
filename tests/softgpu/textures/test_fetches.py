"""tex, tld4 and txq against the formulas of the CUDA programming guide."""

from __future__ import annotations

import numpy as np
import pytest
from cuda.bindings import driver
from helpers.driver import texture_objects
from helpers.driver.call_results import ok
from helpers.driver.texture_model import BORDER, CLAMP, MIRROR, WRAP, Texture, face_of

DTYPES = list(texture_objects.FORMATS)
RESULTS = "{%r0, %r1, %r2, %r3}"


def tex(geometry, where, types="f32.f32", how=""):
    return f"tex.{how}{geometry}.v4.{types} {RESULTS}, [%object, {{{where}}}];"


def same(found, expected):
    """Compare bit by bit, except for NaN."""
    expected = np.ascontiguousarray(expected)
    if expected.dtype.kind == "f":
        np.testing.assert_array_equal(found.view(np.float32), expected)
    else:
        np.testing.assert_array_equal(found, expected.view(np.uint32))


SAMPLED = [
    (dimensions, dtype, channels, modes, is_linear, is_normalised)
    for number, (dimensions, is_linear, is_normalised) in enumerate(
        (d, f, n) for d in (2, 1, 3) for f in (True, False) for n in (True, False)
    )
    for dtype, channels, modes in [
        (DTYPES[(number + 3 * k) % 8], (4, 1, 2)[(number + k) % 3], modes)
        for k, modes in enumerate(
            [(WRAP, MIRROR, CLAMP), (BORDER, CLAMP, MIRROR), (MIRROR, BORDER, WRAP)]
        )
    ]
]


@pytest.mark.sampled(5)
@pytest.mark.parametrize(
    ("dimensions", "dtype", "channels", "modes", "is_linear", "is_normalised"), SAMPLED
)
def test_a_fetch_by_floats(
    context, by, dimensions, dtype, channels, modes, is_linear, is_normalised
):
    random = np.random.default_rng(7)
    size = (7, 5, 3)[:dimensions]
    raw = texture_objects.texels(random, dtype, (*((1, 1, 1, *size[::-1]))[-3:], channels))
    handle, model = texture_objects.texture_of(
        [raw],
        dimensions,
        modes=modes,
        is_linear=is_linear and dtype not in ("int32", "uint32"),
        is_normalised=is_normalised,
        border=(0.5, -1.0, 2.0, 0.25) if dtype.startswith("f") else (1.0, 2.0, 3.0, 4.0),
    )
    points = texture_objects.points(random, 160, size, is_normalised=is_normalised)
    where = ", ".join(["%f0", "%f1", "%f2", "%f2"][: (1, 2, 4)[dimensions - 1]])
    types = "s32.f32" if model.gives_integers else "f32.f32"
    found = texture_objects.run(tex(f"{dimensions}d", where, types), handle, points, by=by)
    with np.errstate(all="ignore"):
        expected = model.sample(points["f"].T[:dimensions])
    same(found, expected)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("mode", [BORDER, CLAMP, WRAP])
@pytest.mark.parametrize("dimensions", [2, 1, 3])
@pytest.mark.parametrize("dtype", ["int8", "float16"])
def test_a_fetch_by_integers(context, by, dimensions, mode, dtype):
    """Such a fetch is not filtered, and gives the edge or the border beyond the texture."""
    random = np.random.default_rng(8)
    size = (7, 5, 3)[:dimensions]
    raw = texture_objects.texels(random, dtype, (*((1, 1, 1, *size[::-1]))[-3:], 2))
    border = (1.0, 2.0, 3.0, 4.0)
    handle, model = texture_objects.texture_of([raw], dimensions, modes=(mode,) * 3, border=border)
    points = texture_objects.points(random, 128, size, is_normalised=False)
    where = ", ".join(["%i0", "%i1", "%i2", "%i2"][: (1, 2, 4)[dimensions - 1]])
    found = texture_objects.run(tex(f"{dimensions}d", where, "f32.s32"), handle, points, by=by)
    same(found, model.fetch(points["i"].T[:dimensions]))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("is_linear", [True, False])
@pytest.mark.parametrize("dimensions", [2, 1])
def test_a_layer_is_chosen_and_not_filtered(context, by, dimensions, is_linear):
    random = np.random.default_rng(9)
    size = (6, 4)[:dimensions]
    raw = texture_objects.texels(random, "uint16", (3, *((1, 1, *size[::-1]))[-2:], 4))
    handle, model = texture_objects.texture_of(
        [raw], dimensions, flags=texture_objects.LAYERED, is_linear=is_linear
    )
    points = texture_objects.points(random, 96, size, is_normalised=False)
    points["i"][:, 3] = random.integers(-2, 5, 96)
    where = ("%i3, %f0", "%i3, %f0, %f1, %f1")[dimensions - 1]
    layer = points["i"][:, 3]
    found = texture_objects.run(tex(f"a{dimensions}d", where), handle, points, by=by)
    same(found, model.sample(points["f"].T[:dimensions], layer))
    where = ("%i3, %i0", "%i3, %i0, %i1, %i1")[dimensions - 1]
    found = texture_objects.run(tex(f"a{dimensions}d", where, "f32.s32"), handle, points, by=by)
    same(found, model.fetch(points["i"].T[:dimensions], layer))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("has_layers", [True, False])
def test_a_cube_is_read_by_directions(context, by, has_layers):
    random = np.random.default_rng(10)
    raw = texture_objects.texels(random, "float32", (12 if has_layers else 6, 4, 4, 2))
    flags = texture_objects.CUBEMAP | texture_objects.LAYERED * has_layers
    handle, model = texture_objects.texture_of([raw], 2, flags=flags, is_linear=True)
    points = np.zeros(200, texture_objects.POINT)
    points["f"] = random.standard_normal((200, 10))
    points["f"][:60] = np.round(points["f"][:60])
    points["f"][:60, 0] += points["f"][:60, 0] == 0
    points["i"][:, 0] = random.integers(0, 3, 200)
    face, s, t = face_of(points["f"].T[:3])
    assert set(face) == set(range(6))
    if has_layers:
        body = tex("acube", "%i0, %f0, %f1, %f2")
        face = face + 6 * np.minimum(points["i"][:, 0], 1)
    else:
        body = tex("cube", "%f0, %f1, %f2, %f2")
    same(texture_objects.run(body, handle, points, by=by), model.sample([s, t], face))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("blends_levels", [True, False])
@pytest.mark.parametrize("dimensions", [2, 1, 3])
def test_levels_of_detail(context, by, dimensions, blends_levels):
    random = np.random.default_rng(11)
    size = (16, 8, 4)[:dimensions]
    shapes = [[max(1, n >> level) for n in size[::-1]] for level in range(4)]
    levels = [
        texture_objects.texels(random, "uint8", (*([1, 1, 1, *shape])[-3:], 4)) for shape in shapes
    ]
    handle, model = texture_objects.texture_of(
        levels,
        dimensions,
        is_normalised=True,
        is_linear=True,
        blends_levels=blends_levels,
        bias=0.25,
        clamps=(0.5, 2.75),
    )
    points = texture_objects.points(random, 96, size, is_normalised=True)
    points["f"][:, 9] = random.uniform(-1, 5, 96)
    points["f"][:40, 9] = np.round(points["f"][:40, 9])
    where = ("%f0", "%f0, %f1", "%f0, %f1, %f2, %f2")[dimensions - 1]
    body = f"tex.level.{dimensions}d.v4.f32.f32 {RESULTS}, [%object, {{{where}}}], %f9;"
    with np.errstate(all="ignore"):
        expected = model.at_detail(points["f"].T[:dimensions], points["f"][:, 9])
    same(texture_objects.run(body, handle, points, by=by), expected)


def test_gradients_choose_the_level(context, by):
    random = np.random.default_rng(12)
    levels = [texture_objects.texels(random, "float32", (1, n, n, 1)) for n in (16, 8, 4, 2, 1)]
    handle, model = texture_objects.texture_of(levels, 2, is_normalised=True, clamps=(0.0, 9.0))
    points = texture_objects.points(random, 64, (16, 16), is_normalised=True)
    longest = random.integers(-5, 0, 64)
    points["f"][:, 3:7] = 0
    points["f"][np.arange(64), 3 + random.integers(0, 4, 64)] = 2.0**longest
    body = "tex.grad.2d.v4.f32.f32 " + RESULTS
    body += ", [%object, {%f0, %f1}], {%f3, %f4}, {%f5, %f6};"
    with np.errstate(all="ignore"):
        expected = model.at_detail(points["f"].T[:2], longest + 4.0)
    same(texture_objects.run(body, handle, points, by=by), expected)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("channel", "rgba")
def test_the_four_texels_of_a_filter_are_gathered(context, by, channel):
    random = np.random.default_rng(13)
    raw = texture_objects.texels(random, "float32", (1, 5, 6, 4))
    handle, model = texture_objects.texture_of([raw], 2, flags=texture_objects.GATHER)
    points = texture_objects.points(random, 96, (6, 5), is_normalised=False)
    body = f"tld4.{channel}.2d.v4.f32.f32 {RESULTS}, [%object, {{%f0, %f1}}];"
    expected = model.gather(points["f"].T[:2], "rgba".index(channel))
    same(texture_objects.run(body, handle, points, by=by), expected)


def test_what_a_texture_is_can_be_asked(context, by):
    random = np.random.default_rng(14)
    raw = texture_objects.texels(random, "uint8", (3, 5, 6, 4))
    handle, _ = texture_objects.texture_of([raw], 2, flags=texture_objects.LAYERED)
    names = ("width", "height", "array_size", "num_mipmap_levels")
    body = "".join(f"txq.{name}.b32 %r{n}, [%object];" for n, name in enumerate(names))
    assert texture_objects.run(body, handle, np.zeros(2, texture_objects.POINT), by=by)[
        0
    ].tolist() == [
        6,
        5,
        3,
        1,
    ]


def test_bytes_of_srgb_are_read_as_light(context, by):
    raw = np.arange(256, dtype=np.uint8).repeat(4).reshape(1, 1, 256, 4)
    handle, model = texture_objects.texture_of([raw], 1, is_srgb=True)
    points = np.zeros(256, texture_objects.POINT)
    points["i"][:, 0] = np.arange(256)
    same(
        texture_objects.run(tex("1d", "%i0", "f32.s32"), handle, points, by=by),
        model.fetch(points["i"].T[:1]),
    )


def memory_texture(raw, model, *, pitch=0):
    """A texture of texels in memory: in one row, or in rows `pitch` bytes apart."""
    what = driver.CUDA_RESOURCE_DESC()
    rows, width, channels = raw.shape
    row = width * channels * raw.itemsize
    memory = ok(driver.cuMemAlloc(max(pitch, row) * rows))
    if pitch:
        padded = np.zeros((rows, pitch), np.uint8)
        padded[:, :row] = raw.view(np.uint8).reshape(rows, row)
        ok(driver.cuMemcpyHtoD(memory, padded.ctypes.data, padded.nbytes))
        what.resType, of = driver.CUresourcetype.CU_RESOURCE_TYPE_PITCH2D, what.res.pitch2D
        of.width, of.height, of.pitchInBytes = width, rows, pitch
    else:
        ok(driver.cuMemcpyHtoD(memory, raw.ctypes.data, raw.nbytes))
        what.resType, of = driver.CUresourcetype.CU_RESOURCE_TYPE_LINEAR, what.res.linear
        of.sizeInBytes = raw.nbytes
    of.devPtr, of.format, of.numChannels = memory, texture_objects.FORMATS[raw.dtype.name], channels
    return ok(driver.cuTexObjectCreate(what, texture_objects.sampling_of(model), None)), memory


def test_linear_memory_is_read_by_integers_and_is_zero_beyond(context, by):
    random = np.random.default_rng(15)
    raw = texture_objects.texels(random, "int16", (1, 9, 2))
    model = Texture([raw[None]], modes=(BORDER,) * 3)
    handle, _ = memory_texture(raw, model)
    points = texture_objects.points(random, 64, (9,), is_normalised=False)
    found = texture_objects.run(tex("1d", "%i0", "f32.s32"), handle, points, by=by)
    same(found, model.fetch(points["i"].T[:1]))


def test_rows_in_memory_are_filtered(context):
    random = np.random.default_rng(16)
    raw = texture_objects.texels(random, "float32", (4, 6, 1))
    model = Texture([raw[None]], is_linear=True)
    handle, memory = memory_texture(raw, model, pitch=64)
    points = texture_objects.points(random, 64, (6, 4), is_normalised=False)
    body = tex("2d", "%f0, %f1")
    same(texture_objects.run(body, handle, points), model.sample(points["f"].T[:2]))
    # The kernel reads the memory's content at the time it runs.
    ok(driver.cuMemsetD32(memory, 0x40000000, 64))
    found = texture_objects.run(body, handle, points[:8])
    assert (found.view(np.float32)[:, 0] == 2).all()
