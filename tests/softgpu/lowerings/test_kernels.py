"""Every shipped kernel gives NumPy's answer, for less than a block, one block, and several.

Each test uses the public API, so it shows the same on a real GPU. Guard elements around the written
memory must stay unchanged.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

import cudasync as cs
from cudasync.array.kernels.bundled_ptx import kernel_file

pytestmark = pytest.mark.sampled(2)

SIZES = [1, 31, 257, 1000]
SHAPES = [(1, 1), (1, 40), (37, 1), (3, 5), (16, 16), (33, 300), (70, 45)]
BLOCK = 128
GUARD = 7


@cache
def kernel(file, name):
    return cs.Module.from_file(kernel_file(file)).kernel(name)


def random(shape, dtype=np.float32, seed=0):
    generator = np.random.default_rng([seed, *np.atleast_1d(shape)])
    if np.issubdtype(dtype, np.floating):
        return generator.standard_normal(shape).astype(dtype)
    limits = np.iinfo(dtype)
    return generator.integers(limits.min, limits.max, shape, dtype, endpoint=True)


def run(file, name, arguments, target, grid, block):
    """Launch with `target` in the place of "target" among `arguments`; return its new content."""
    padded = np.full(target.size + 2 * GUARD, 77, target.dtype)
    padded[GUARD:-GUARD] = target.ravel()
    on_device = cs.array(padded)
    inside = on_device[GUARD:-GUARD]
    given = [
        inside if isinstance(a, str) else cs.array(a) if isinstance(a, np.ndarray) else a
        for a in arguments
    ]
    kernel(file, name)[grid, block](*given)
    result = on_device.numpy()
    assert (result[:GUARD] == 77).all(), "wrote before its target"
    assert (result[-GUARD:] == 77).all(), "wrote behind its target"
    return result[GUARD:-GUARD].reshape(target.shape)


def pointwise(file, name, arguments, target):
    n = target.size
    arguments = [*arguments, np.uint32(n)]
    return run(file, name, arguments, target, ((n + BLOCK - 1) // BLOCK,), (BLOCK,))


def by_rows(file, name, arguments, target):
    height, width = target.shape
    return run(file, name, arguments, target, (height, (width + BLOCK - 1) // BLOCK), (BLOCK,))


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("dtype", [np.float32, np.uint32, np.uint8])
def test_fill(n, dtype):
    short = {"float32": "f32", "uint32": "u32", "uint8": "u8"}[np.dtype(dtype).name]
    result = pointwise("fill", f"fill_{short}", [dtype(200), "target"], np.zeros(n, dtype))
    assert (result == dtype(200)).all()


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("dtype", [np.uint8, np.uint32, np.uint64])
def test_copy(n, dtype):
    source = random(n, dtype)
    name = f"copy_u{8 * np.dtype(dtype).itemsize}"
    np.testing.assert_array_equal(
        pointwise("copy", name, [source, "target"], np.zeros(n, dtype)), source
    )


@pytest.mark.parametrize("n", SIZES)
def test_casts_that_lose_nothing_or_round_as_numpy_does(n):
    for source, short, target in [
        (random(n, np.uint8), "u8_f32", np.float32),
        (random(n, np.float32), "f32_f64", np.float64),
        (random(n, np.float64), "f64_f32", np.float32),
        (random(n, np.int32), "i32_f32", np.float32),
        (random(n, np.float32) * 1e5, "f32_i32", np.int32),
    ]:
        result = pointwise("cast", f"cast_{short}", [source, "target"], np.zeros(n, target))
        np.testing.assert_array_equal(result, source.astype(target), err_msg=short)


def test_casts_to_integers_clamp():
    odd = np.array([np.nan, -np.inf, -3e9, -1.5, -0.5, 0.5, 1.5, 2.5, 255.4, 3e9, np.inf], "f4")
    as_u8 = pointwise("cast", "cast_f32_u8", [odd, "target"], np.ones(odd.size, np.uint8))
    np.testing.assert_array_equal(as_u8, [0, 0, 0, 0, 0, 0, 2, 2, 255, 255, 255])
    as_i32 = pointwise("cast", "cast_f32_i32", [odd, "target"], np.ones(odd.size, np.int32))
    least, most = np.iinfo(np.int32).min, np.iinfo(np.int32).max
    np.testing.assert_array_equal(as_i32, [0, least, least, -1, 0, 0, 1, 2, 255, most, most])


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32])
def test_arithmetic(n, dtype):
    x, y = random(n, dtype, seed=1), random(n, dtype, seed=2)
    short = {"float32": "f32", "float64": "f64", "int32": "i32"}[np.dtype(dtype).name]
    y[y == 0] = 1
    expected = {
        "add": x + y,
        "sub": x - y,
        "mul": x * y,
        "div": x / y if short != "i32" else np.trunc(x / y.astype(np.float64)).astype(np.int32),
        "min": np.minimum(x, y),
        "max": np.maximum(x, y),
    }
    for op, values in expected.items():
        arguments = [x, y, "target"]
        result = pointwise(f"arithmetic_{short}", f"{op}_{short}", arguments, np.zeros(n, dtype))
        np.testing.assert_array_equal(result, values, err_msg=op)


def test_integer_division_by_zero_leaves_all_bits_set():
    x, y = np.array([5, -5, 0, 7], np.int32), np.array([0, 0, 0, -2], np.int32)
    result = pointwise("arithmetic_i32", "div_i32", [x, y, "target"], np.zeros(4, np.int32))
    np.testing.assert_array_equal(result, [-1, -1, -1, -3])


def test_min_and_max_prefer_a_number_to_a_nan():
    x, y = np.array([np.nan, 1, np.nan], "f4"), np.array([2, np.nan, np.nan], "f4")
    for op, expected in (("min", np.fmin(x, y)), ("max", np.fmax(x, y))):
        result = pointwise("arithmetic_f32", f"{op}_f32", [x, y, "target"], np.zeros(3, "f4"))
        np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("n", SIZES)
def test_axpy_rounds_once(n):
    x, y = random(n, seed=1), random(n, seed=2)
    # The product of two singles is exact in double, and the double rounding of the sum is harmless.
    expected = (np.float64(np.float32(1.7)) * x.astype(np.float64) + y).astype(np.float32)
    result = pointwise("saxpy", "saxpy", [np.float32(1.7), x, "target"], y)
    np.testing.assert_array_equal(result, expected)
    x, y = x.astype(np.float64), y.astype(np.float64)
    result = pointwise("daxpy", "daxpy", [np.float64(-0.3), x, "target"], y)
    np.testing.assert_allclose(result, -0.3 * x + y, rtol=0, atol=1e-15)


@pytest.mark.parametrize("n", [0, 1, 2, 33, 255, 1000, 4097])
@pytest.mark.parametrize("block", [1, 24, 256, 1000])
def test_reduce(n, block):
    x = random(n)
    for op, expected in (
        ("sum", x.sum(dtype=np.float64)),
        ("min", x.min(initial=np.inf)),
        ("max", x.max(initial=-np.inf)),
    ):
        arguments = [x if n else np.zeros(1, "f4"), "target", np.uint32(n)]
        partials = run("reduce", f"reduce_{op}_f32", arguments, np.zeros(3, "f4"), (3,), (block,))
        arguments = [partials, "target", np.uint32(3)]
        result = run("reduce", f"reduce_{op}_f32", arguments, np.zeros(1, "f4"), (1,), (block,))
        np.testing.assert_allclose(result[0], expected, rtol=1e-5, atol=1e-4, err_msg=op)


@pytest.mark.parametrize(("m", "n", "k"), [(1, 1, 1), (16, 16, 16), (33, 18, 50), (5, 40, 0)])
def test_sgemm(m, n, k):
    a, b = random((m, k), seed=1), random((k, n), seed=2)
    arguments = [a if k else np.zeros(1, "f4"), b if k else np.zeros(1, "f4"), "target"]
    arguments += [np.uint32(m), np.uint32(n), np.uint32(k)]
    grid = (n + 15) // 16, (m + 15) // 16
    result = run("sgemm", "sgemm", arguments, np.full((m, n), np.nan, "f4"), grid, (16, 16))
    np.testing.assert_allclose(result, a.astype(np.float64) @ b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("lines", [1, 8, 32])
def test_transpose(shape, lines):
    source = random(shape)
    rows, columns = shape
    arguments = [source, "target", np.uint32(rows), np.uint32(columns)]
    grid = (columns + 31) // 32, (rows + 31) // 32
    target = np.zeros((columns, rows), "f4")
    result = run("transpose", "transpose_f32", arguments, target, grid, (32, lines))
    np.testing.assert_array_equal(result, source.T)


def convolved(source, weights, axis):
    radius = len(weights) // 2
    places = np.arange(source.shape[axis])
    return sum(
        w * source.take(np.clip(places + t - radius, 0, places[-1]), axis=axis)
        for t, w in enumerate(weights.astype(np.float64))
    )


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("radius", [0, 1, 9, 50])
def test_convolution(shape, radius):
    source, weights = random(shape), random(2 * radius + 1, seed=3)
    size = [np.uint32(shape[1]), np.uint32(shape[0]), np.uint32(radius)]
    for name, axis in (("gaussian_rows", 1), ("gaussian_columns", 0)):
        result = by_rows(
            "convolution", name, [source, weights, "target", *size], np.zeros_like(source)
        )
        expected = convolved(source, weights, axis)
        np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-4, err_msg=name)


@pytest.mark.parametrize("shape", SHAPES)
def test_sobel(shape):
    source = random(shape)
    p = np.pad(source.astype(np.float64), 1, mode="edge")
    across, down = p[:, 2:] - p[:, :-2], p[2:] - p[:-2]
    expected = np.hypot(
        across[:-2] + 2 * across[1:-1] + across[2:],
        down[:, :-2] + 2 * down[:, 1:-1] + down[:, 2:],
    )
    size = [np.uint32(shape[1]), np.uint32(shape[0])]
    result = by_rows("sobel", "sobel", [source, "target", *size], np.zeros_like(source))
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("n", SIZES)
def test_unsharp_combine_and_extend(n):
    x, y, mask = (np.abs(random(n, seed=s)) % 1 for s in (1, 2, 3))
    result = pointwise("unsharp", "unsharp", [x, y, np.float32(0.8), "target"], np.zeros_like(x))
    np.testing.assert_allclose(result, np.clip(x + 0.8 * (x - y), 0, 1), rtol=1e-5, atol=1e-6)
    result = pointwise("combine", "combine", [x, y, mask, "target"], np.zeros_like(x))
    np.testing.assert_allclose(result, mask * x + (1 - mask) * y, rtol=1e-5, atol=1e-6)
    low, high = np.array([0.2], "f4"), np.array([0.7], "f4")
    arguments = [x, low, high, np.float32(2), "target"]
    result = pointwise("extend", "extend", arguments, np.zeros_like(x))
    np.testing.assert_allclose(result, np.clip(2 * (x - 0.2) / 0.5, 0, 1), rtol=1e-5, atol=1e-5)


def test_extend_of_an_even_picture_is_zero():
    x, level = np.full(40, 0.3, "f4"), np.array([0.3], "f4")
    arguments = [x, level, level, np.float32(1), "target"]
    assert not pointwise("extend", "extend", arguments, np.ones_like(x)).any()


@pytest.mark.parametrize("n", SIZES)
def test_luma_and_recolour(n):
    rgba = random((n, 4), np.uint8)
    expected = rgba[:, :3] @ np.array([0.299, 0.587, 0.114]) / 255
    before = pointwise("luma", "luma", [rgba, "target"], np.zeros(n, "f4"))
    np.testing.assert_allclose(before, expected, rtol=1e-6, atol=1e-6)
    after = np.abs(random(n)) % 1
    words = rgba.view(np.uint32).ravel()
    result = pointwise("luma", "recolour", [words, before, after, "target"], np.zeros_like(words))
    # Round twice as the kernel does, so that no tie falls to the other side.
    shift = (after - before) * np.float32(255)
    levels = np.clip(np.rint(rgba[:, :3] + shift[:, np.newaxis]), 0, 255)
    np.testing.assert_array_equal(result.view(np.uint8).reshape(n, 4)[:, :3], levels)
    np.testing.assert_array_equal(result.view(np.uint8).reshape(n, 4)[:, 3], rgba[:, 3])


def test_latch_holds_its_stream_until_the_flag_is_set():
    flag = cs.pinned_empty((1,), np.uint32)
    flag[0] = 0
    with cs.Stream() as stream:
        cs.launch(
            kernel("latch", "latch"), grid=(1,), block=(1,), args=(flag.ctypes.data,), stream=stream
        )
        assert not stream.query()
        flag[0] = 1
        stream.synchronize()
        assert stream.query()


def test_inferred_accesses_tell_sources_from_targets():
    """The engine orders launches by these accesses; the kernels are those of the demo."""
    for file, name, reads, writes in [
        ("saxpy", "saxpy", {"x", "y"}, {"y"}),
        ("convolution", "gaussian_rows", {"source", "weights"}, {"target"}),
        ("convolution", "gaussian_columns", {"source", "weights"}, {"target"}),
        ("sobel", "sobel", {"source"}, {"target"}),
        ("extend", "extend", {"source", "low", "high"}, {"target"}),
        ("reduce", "reduce_max_f32", {"x"}, {"partials"}),
        ("sgemm", "sgemm", {"a", "b"}, {"c"}),
        ("latch", "latch", {"flag"}, set()),
    ]:
        accesses = {p.name: p.access.name for p in kernel(file, name).parameters}
        assert {n for n, a in accesses.items() if a in ("READ", "READ_WRITE")} == reads, name
        assert {n for n, a in accesses.items() if a in ("WRITE", "READ_WRITE")} == writes, name
