"""Whole kernels, as NVRTC compiles them, against NumPy.

Every kernel runs with the default settings, for two targets, and with all registers treated as
varying, with --run-slow: three programs that must agree. Shapes are chosen so that the last warp is
partial, blocks are no multiple of a warp, and grids have three dimensions.
"""

from __future__ import annotations

import numpy as np
import pytest
from helpers.lowering.jit_launch import corpus, run
from hypothesis import example, given

from cudasync.testing import LaunchShape, launches

PROGRAMS = {
    "sm75": ("kernels_sm75", {}),
    "sm120": ("kernels_sm120", {}),
    "varying": ("kernels_sm75", {"assume_varying": True}),
}


@pytest.fixture(
    scope="module",
    params=["sm75", "sm120", pytest.param("varying", marks=pytest.mark.slow)],
)
def module(request):
    name, settings = PROGRAMS[request.param]
    return corpus(name, **settings)


@pytest.fixture
def random():
    return np.random.default_rng(7)


def floats(random, *shape):
    return random.random(shape, np.float32)


@given(launches())
@example(LaunchShape(15, 48, 700))
def test_axpy_of_any_length_and_block(module, launch):
    x, y = (floats(np.random.default_rng(seed), launch.count) for seed in (7, 8))
    expected = np.float32(3) * x + y
    run(module, "axpy", launch.grid, launch.block, np.float32(3), x, y, launch.count)
    np.testing.assert_allclose(y, expected, rtol=1e-6)


@pytest.mark.parametrize("block", [64, 40])
def test_a_grid_stride_loop_visits_everything_once(module, random, block):
    x, y = floats(random, 5001), np.zeros(5001, np.float32)
    run(module, "grid_stride", 7, block, x, y, 5001)
    np.testing.assert_array_equal(y, x * 2 + 1)


def test_a_stencil_leaves_its_border(module, random):
    x = floats(random, 37, 70)
    y = np.full_like(x, -1)
    run(module, "stencil", (3, 5), (32, 8), x, y, 70, 37)
    inner = np.float32(0.25) * ((x[1:-1, :-2] + x[1:-1, 2:]) + (x[:-2, 1:-1] + x[2:, 1:-1]))
    np.testing.assert_allclose(y[1:-1, 1:-1], inner, rtol=1e-6)
    assert (y[0] == -1).all()
    assert (y[:, -1] == -1).all()


def test_a_tiled_product_of_matrices(module, random):
    a, b = floats(random, 64, 64), floats(random, 64, 64)
    c = np.zeros((64, 64), np.float32)
    run(module, "matmul", (4, 4), (16, 16), a, b, c, 64)
    np.testing.assert_allclose(c, a @ b, rtol=1e-5)


@pytest.mark.parametrize("block", [256, 64])
def test_a_sum_with_barriers_in_a_loop(module, random, block):
    x, total = floats(random, 10007), np.zeros(1, np.float32)
    run(module, "block_sum", 5, block, x, total, 10007, dynamic=4 * block)
    np.testing.assert_allclose(total[0], x.sum(dtype=np.float64), rtol=1e-5)


def test_a_transpose_through_a_shared_tile(module, random):
    x = floats(random, 45, 71)
    y = np.zeros((71, 45), np.float32)
    run(module, "transpose", (3, 2), (32, 8), x, y, 71, 45)
    np.testing.assert_array_equal(y, x.T)


def test_a_histogram_with_shared_and_global_atomics(module, random):
    x = random.integers(0, 256, 5000, np.uint8)
    counts = np.zeros(256, np.uint32)
    run(module, "histogram", 3, 96, x, counts, 5000)
    np.testing.assert_array_equal(counts, np.bincount(x, minlength=256))


def mandelbrot(width, height, limit):
    f = np.float32
    j, i = np.mgrid[0:height, 0:width]
    cr = f(-2) + f(3) * i.astype(f) / f(width)
    ci = f(-1.5) + f(3) * j.astype(f) / f(height)
    a, b, steps = np.zeros_like(cr), np.zeros_like(cr), np.zeros(cr.shape, np.int32)
    for _ in range(limit):
        goes = a * a + b * b < 4
        a, b = np.where(goes, a * a - b * b + cr, a), np.where(goes, f(2) * a * b + ci, b)
        steps += goes
    return steps


def test_lanes_leave_a_loop_one_by_one(module):
    steps = np.zeros((40, 50), np.int32)
    run(module, "mandelbrot", (2, 5), (32, 8), steps, 50, 40, 60)
    # Contraction into fma changes a few points at the edge of the set.
    assert (steps != mandelbrot(50, 40, 60)).mean() < 0.02


@pytest.mark.parametrize("block", [128, 100])
def test_a_scan_in_dynamic_shared_memory(module, random, block):
    x, y = random.integers(-9, 9, block, np.int32), np.zeros(block, np.int32)
    run(module, "scan", 1, block, x, y, block, dynamic=4 * block)
    np.testing.assert_array_equal(y, np.cumsum(x))


@pytest.mark.parametrize(
    ("grid", "block"),
    [((2, 3, 2), (4, 3, 5)), ((3, 1, 1), (64, 2, 2)), ((1, 2, 2), (16, 4, 2)), ((2, 2), (7, 1))],
)
def test_coordinates_in_three_dimensions(module, grid, block):
    gx, gy, gz = (*grid, 1)[:3]
    bx, by, bz = (*block, 1)[:3]
    out = np.zeros((gz, gy, gx, bz, by, bx), np.int32)
    run(module, "coordinates", grid, block, out)
    Z, Y, X, z, y, x = np.indices(out.shape)
    expected = x + 100 * y + 10000 * z + 1000000 * (X + 10 * Y + 100 * Z)
    np.testing.assert_array_equal(out, expected)


def test_branches_in_a_divergent_loop_with_a_break(module, random):
    def steps_of(v):
        k = 0
        while v != 1:
            v = 3 * v + 1 if v & 1 else v >> 1
            if k == 500:
                return -1
            k += 1
        return k

    x = random.integers(1, 3000, 150, np.int32)
    steps = np.zeros(150, np.int32)
    run(module, "collatz", 2, 96, x, steps, 150)
    np.testing.assert_array_equal(steps, [steps_of(int(v)) for v in x])


def test_threads_that_left_count_as_arrived_at_a_barrier(module, random):
    x, y = random.integers(0, 99, 256, np.int32), np.zeros(256, np.int32)
    run(module, "early_exit_then_barrier", 1, 256, x, y, 75)
    np.testing.assert_array_equal(y[:75], x[:75][::-1])
    assert not y[75:].any()


def test_nested_loops_with_continue_and_break(module, random):
    def sum_of(i, count):
        total = 0
        for a in range(count):
            if a % 3 == 1:
                continue
            for b in range(a, i % 7):
                if b == 5:
                    break
                total += a * b + 1
            total ^= i
        return total

    x, y = random.integers(0, 12, 200, np.int32), np.zeros(200, np.int32)
    run(module, "nested", 3, 80, x, y, 200)
    np.testing.assert_array_equal(y, [sum_of(i, int(count)) for i, count in enumerate(x)])


def test_integer_division_truncates_and_never_traps(module, random):
    a = random.integers(-(2**31), 2**31, 64).astype(np.int32)
    b = random.integers(-50, 50, 64).astype(np.int32)
    a[:3], b[:3] = [-(2**31), 5, -5], [-1, 0, 0]
    c = random.integers(0, 2**32, 64).astype(np.uint32)
    d = random.integers(0, 2**17, 64).astype(np.uint32)
    d[:2] = 0
    out = np.zeros((7, 64), np.int32)
    run(module, "divide", 1, 64, a, b, c, d, out)
    wide_a, wide_b = a.astype(np.int64), b.astype(np.int64)
    nonzero = b != 0
    safe = np.where(nonzero, wide_b, 1)
    quotient = np.where(nonzero, np.trunc(wide_a / safe), -1).astype(np.int64)
    np.testing.assert_array_equal(out[0], quotient.astype(np.int32))
    np.testing.assert_array_equal(out[1], np.where(nonzero, wide_a - quotient * safe, -1))
    whole = np.where(d, c // np.maximum(d, 1), 0xFFFFFFFF).astype(np.uint32)
    np.testing.assert_array_equal(out[2].view(np.uint32), whole)
    rest = np.where(d, c % np.maximum(d, 1), 0xFFFFFFFF).astype(np.uint32)
    np.testing.assert_array_equal(out[3].view(np.uint32), rest)
    np.testing.assert_array_equal(out[4], (wide_a * wide_b) >> 32)
    high = (c.astype(np.uint64) * d.astype(np.uint64)) >> np.uint64(32)
    np.testing.assert_array_equal(out[5].view(np.uint32), high)


def test_wide_division(module, random):
    a = random.integers(-(2**62), 2**62, 32)
    b = random.integers(-(2**40), 2**40, 32)
    a[0], b[0], b[1] = -(2**63), -1, 0
    out = np.zeros((4, 32), np.int64)
    run(module, "divide_wide", 1, 32, a, b, out)
    for i in range(32):
        x, y = int(a[i]), int(b[i])
        quotient = abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1) if y else -1
        wrapped = (quotient + 2**63) % 2**64 - 2**63
        assert int(out[0, i]) == wrapped
        assert int(out[1, i]) == (x - quotient * y if y else -1)
        assert int(out[2, i]) % 2**64 == ((x % 2**64) // (y % 2**64) if y else 2**64 - 1)
        assert int(out[3, i]) == (x * y) >> 64


@pytest.mark.parametrize("n", [64, 45])
def test_vector_loads_and_stores(module, random, n):
    x, u = floats(random, n, 4), random.random((n, 2))
    y, v = np.zeros_like(x), np.zeros_like(u)
    run(module, "vectors", 2, 32, x, y, u, v, n)
    expected = np.stack([x[:, 0] * 2, x[:, 1] + 1, x[:, 2] - x[:, 3], x[:, 3]], axis=1)
    np.testing.assert_array_equal(y, expected)
    np.testing.assert_array_equal(v, u[:, ::-1])


def test_local_arrays_belong_to_their_thread(module, random):
    x = random.integers(0, 99, (64, 16), np.int32)
    out = np.zeros(64, np.int32)
    run(module, "local_array", 1, 64, x, out, 40)
    flat = x.ravel()
    a = x.astype(np.int64).copy()
    for i in range(40):
        a[:, (i * 7 + flat[i]) & 15] += i
    np.testing.assert_array_equal(out, (a * np.arange(16)).sum(axis=1))


def test_structures_by_value(module):
    mixed = np.zeros(1, [("a", "i4"), ("pad", "i4"), ("b", "f8"), ("c", "f4", 4), ("d", "u1", 8)])
    mixed["a"], mixed["b"], mixed["c"], mixed["d"] = 7, 0.5, [[1, 2, 3, 4]], 9
    out = np.zeros(40, np.float32)
    run(module, "by_value", 1, 40, mixed[0], out)
    np.testing.assert_array_equal(out, 7 + 0.5 + 1 + np.arange(40) % 4 + 9)


def test_module_variables_are_found_through_the_symbol_table(module):
    names = [variable.name for variable in module.variables]
    values = {"weights": np.array([1, 2, 3, 4], np.float32), "counter": np.array([5], np.int32)}
    symbols = [values.get(name, np.zeros(64, np.uint8)) for name in names]
    out = np.zeros(40, np.float32)
    run(module, "variables", 1, 40, out, symbols=symbols)
    np.testing.assert_array_equal(out, 1 + np.arange(40) % 4)
    assert values["counter"][0] == 6


@pytest.mark.parametrize("n", [128, 77])
def test_narrow_integers_extend_and_truncate(module, random, n):
    a = random.integers(-128, 128, n).astype(np.int8)
    b = random.integers(0, 2**16, n).astype(np.uint16)
    out, low = np.zeros(n, np.int16), np.zeros(n, np.uint8)
    run(module, "narrow", 2, 64, a, b, out, low, n)
    np.testing.assert_array_equal(out, (a.astype(np.int32) * 3 - b).astype(np.int16))
    np.testing.assert_array_equal(low, (b >> 3).astype(np.uint8))


def test_double_arithmetic(module, random):
    x, y = random.standard_normal(100), np.zeros(100)
    run(module, "doubles", 1, 128, x, y, 100)
    expected = np.sqrt(x * x + 1) / (1 + np.abs(x)) + (x * x - 1)
    np.testing.assert_allclose(y, expected, rtol=1e-12)


def test_a_scatter_goes_where_its_indices_say(module, random):
    index = random.permutation(100).astype(np.int32)
    x, y = floats(random, 100), np.zeros(100, np.float32)
    run(module, "permute", 2, 64, index, x, y, 100)
    np.testing.assert_array_equal(y[index], x)


def test_conversions_clamp(module):
    x = np.array([0, 1.5, -1.5, 2.5, 3e9, -3e9, 1e20, -1e20, np.nan, np.inf, -np.inf, 70000.7] * 3)
    x = x[:32].astype(np.float32)
    a, b = np.zeros(32, np.int32), np.zeros(32, np.uint32)
    c, d = np.zeros(32, np.int16), np.zeros(32, np.uint8)
    e, f = np.zeros(32, np.int64), np.zeros(32, np.float64)
    run(module, "conversions", 1, 32, x, a, b, c, d, e, f)
    clean = np.nan_to_num(x.astype(np.float64), nan=0.0, posinf=1e30, neginf=-1e30)
    np.testing.assert_array_equal(a, np.trunc(np.clip(clean, -(2**31), 2**31 - 1)).astype(np.int64))
    np.testing.assert_array_equal(b, np.trunc(np.clip(clean, 0, 2**32 - 1)).astype(np.int64))
    limits = np.iinfo(np.int64)
    # For 64 bits, hardware turns NaN into the number with only the highest bit set.
    expected = [
        limits.min if np.isnan(v) else max(limits.min, min(limits.max, int(w)))
        for v, w in zip(x, clean, strict=True)
    ]
    np.testing.assert_array_equal(e, expected)
    with np.errstate(invalid="ignore"):
        wide = x.astype(np.float64)
        rounded = np.rint(wide) + np.floor(x) + np.ceil(x) + np.trunc(x)
    np.testing.assert_allclose(f, rounded, rtol=1e-6)


def test_atomics_do_what_their_names_say(module, random):
    n = 96
    x = random.integers(0, 1000, n, np.int32)
    s, u = np.array([0, 10**6, -5], np.int32), np.zeros(8 + n, np.uint32)
    u[0], u[5] = 0xFFFFFFFF, 10**6
    w, f, d = np.zeros(2, np.uint64), np.zeros(1, np.float32), np.zeros(1)
    run(module, "atomics", 3, 32, s, u, w, f, d, x)
    assert list(s) == [x.sum(), x.min(), x.max()]
    assert u[0] == np.bitwise_and.reduce(x)
    assert u[1] == np.bitwise_or.reduce(x)
    assert u[2] == np.bitwise_xor.reduce(x)
    assert u[3] == n % 11
    assert u[4] == (-n) % 11
    assert u[5] == x.min()
    assert u[6] == n
    assert u[7] == n
    assert sorted(u[8:]) == list(range(n))
    assert list(w) == [x.sum(), x.max()]
    assert f[0] == d[0] == (x & 15).sum()


def test_a_warp_sums_by_shuffling(module, random):
    x, out = floats(random, 90), np.zeros(3, np.float32)
    run(module, "warp_sum", 1, 96, x, out, 90)
    padded = np.pad(x, (0, 6)).reshape(3, 32)
    np.testing.assert_allclose(out, padded.sum(axis=1), rtol=1e-5)


def test_votes_and_shuffles(module, random):
    x = random.integers(-8, 8, 64, np.int32)
    out = np.zeros(64, np.uint32)
    run(module, "votes", 1, 64, x, out)
    i = np.arange(64)
    warp, lane = i // 32, i % 32
    rows = x.reshape(2, 32)
    ballot = ((rows > 0) << np.arange(32)).sum(axis=1)[warp]
    any_, all_ = (rows > 5).any(axis=1)[warp], (rows > -9).all(axis=1)[warp]
    picked = warp * 32 + (x & 31)
    up = np.where(lane % 8 >= 3, i - 3, i)
    expected = ballot + any_ * 3 + all_ * 5 + (i ^ 1) + picked + up
    np.testing.assert_array_equal(out, expected % 2**32)


@pytest.mark.parametrize("target", ["sm75", "sm120"])
def test_device_functions_are_called_by_the_lanes_that_are_there(target, random):
    def helper(x, n):
        for _ in range(n):
            x = x * np.float32(0.5) + np.float32(1)
        return x

    x = floats(random, 50)
    expected = [helper(v, i % 5) + helper(np.float32(2), 3) for i, v in enumerate(x)]
    run(corpus(f"calls_{target}"), "calls", 1, 50, x)
    np.testing.assert_allclose(x, expected, rtol=1e-6)


@pytest.mark.parametrize("target", ["sm75", "sm120"])
def test_elementary_functions_are_close(target, random):
    x = (random.random(1000, np.float32) * 8 - 4).astype(np.float32)
    y = np.zeros_like(x)
    run(corpus(f"elementary_{target}"), "elementary", 8, 128, x, y, 1000)
    v = x.astype(np.float64)
    expected = np.sin(v) + np.cos(v) * np.exp(-v) + np.log(np.abs(v) + 1) + 1 / np.sqrt(v * v + 1)
    expected += np.tanh(v) + 2**v + np.log2(np.abs(v) + 0.5) + np.sqrt(np.abs(v))
    expected += np.exp(v) + np.sin(v)
    np.testing.assert_allclose(y, expected, rtol=2e-6, atol=2e-5)
