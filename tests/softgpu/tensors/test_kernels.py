"""NVRTC's kernels with tensor cores, asynchronous copies and mbarriers, against NumPy.

They run for each target with different code; small kernels run on the scalar lowering too.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from helpers.lowering import bare_launch
from helpers.lowering.jit_launch import CORPUS, corpus, run

from cudasync.ptx import parse
from cudasync.ptx.access_analysis.accesses import analyse
from cudasync.ptx.types import Access
from cudasync.softgpu import oracle
from cudasync.softgpu.interface.launch import OutcomeKind

pytestmark = pytest.mark.sampled(2)

TARGETS = ("sm80", "sm90", "sm100", "sm120")


# Without --run-slow, only the target that differs most from earlier ones runs.
USUAL = ("sm120", "sm100-library")


def targets(*names, of=""):
    """Parameters; the unusual ones are marked slow."""
    return [
        pytest.param(name, marks=() if name + of in USUAL else pytest.mark.slow) for name in names
    ]


@cache
def plainly_compiled():
    return oracle.compile_module(parse((CORPUS / "tensor_sm120.ptx").read_text()))


@pytest.fixture(scope="module", params=targets(*TARGETS))
def module(request):
    return corpus(f"tensor_{request.param}")


@pytest.fixture
def random():
    return np.random.default_rng(11)


def short(values, bits):
    """f32 with cleared lower bits: the values of bf16 and tf32."""
    return (values.astype(np.float32).view(np.uint32) & np.uint32(-(1 << bits) % 2**32)).view(
        np.float32
    )


def halves(random, *shape):
    return random.normal(size=shape).astype(np.float16)


def bfloats(random, *shape):
    return short(random.normal(size=shape), 16)


def as_bfloats(values):
    return (values.view(np.uint32) >> 16).astype(np.uint16)


def same(values):
    return values


# Kernel, tile, functions that draw and store elements, and the type of C with its tolerance.
FRAGMENTS = [
    ("wmma_half", (16, 16), halves, same, np.float32, 1e-4),
    ("wmma_half_wide", (8, 32), halves, same, np.float16, 2e-1),
    ("wmma_bfloat", (32, 8), bfloats, as_bfloats, np.float32, 1e-4),
    ("wmma_tf32", (16, 16), lambda r, *s: short(r.normal(size=s), 13), same, np.float32, 1e-4),
    ("wmma_bytes", (16, 16), lambda r, *s: r.integers(-128, 128, s, np.int8), same, np.int32, 0),
    ("wmma_double", (8, 8), lambda r, *s: r.normal(size=s), same, np.float64, 1e-12),
]
fragments = pytest.mark.parametrize(
    ("name", "tile", "draw", "stored", "out", "tolerance"),
    FRAGMENTS,
    ids=[each[0] for each in FRAGMENTS],
)


def product(random, draw, m, n, k):
    """A by rows, B by columns, and 2 * A * B as exact as doubles allow."""
    a, b = draw(random, m, k), draw(random, n, k)
    wide = np.int64 if a.dtype == np.int8 else np.float64
    return a, b, 2 * (a.astype(wide) @ b.astype(wide).T)


@fragments
def test_a_product_by_fragments(module, random, name, tile, draw, stored, out, tolerance):
    m, n, k = 2 * tile[0], 2 * tile[1], 48
    a, b, expected = product(random, draw, m, n, k)
    c = np.zeros((m, n), out)
    run(module, name, (2, 2), 32, stored(a), stored(b), c, n, k)
    np.testing.assert_allclose(c, expected, atol=tolerance)


@fragments
def test_the_scalar_lowering_agrees_to_the_bit(random, name, tile, draw, stored, out, tolerance):
    m, n, k = *tile, 32
    a, b, _ = product(random, draw, m, n, k)
    found = []
    for lowered in (corpus("tensor_sm120"), plainly_compiled()):
        memory = [
            bare_launch.aligned(each) for each in (stored(a), stored(b), np.zeros((m, n), out))
        ]
        sizes = [n.to_bytes(4, "little"), k.to_bytes(4, "little")]
        outcome = bare_launch.run(lowered, name, grid=(1,), block=(32,), args=[*memory, *sizes])
        assert outcome.kind is OutcomeKind.DONE, outcome
        found.append(memory[2].tobytes())
    assert found[0] == found[1]


@pytest.mark.parametrize("k", [32, 96])
def test_a_product_by_mma_with_tiles_in_two_stages(module, random, k):
    a, b = halves(random, 128, k), halves(random, k, 64)
    c = np.zeros((128, 64), np.float32)
    run(module, "mma_half", (1, 2), 128, a, b, c, 64, k)
    np.testing.assert_allclose(c, a.astype(np.float64) @ b.astype(np.float64), atol=1e-4)


@pytest.mark.parametrize("n", [1024, 770, 1])
def test_copies_fill_up_with_zeros_where_data_ends(module, random, n):
    x = random.random(n, np.float32)
    blocks = -(-n // 256)
    y = np.zeros(blocks, np.float32)
    run(module, "sums", blocks, 64, x, y, n)
    padded = np.zeros(256 * blocks, np.float32)
    padded[:n] = x
    np.testing.assert_allclose(y, padded.reshape(blocks, 256).sum(1), rtol=1e-5)


@pytest.mark.parametrize("threads", [256, 77])
def test_steps_that_are_phases_of_an_mbarrier(module, random, threads):
    values = random.random((3, threads), np.float32)
    expected = values.copy()
    for _ in range(9):
        left, right = np.roll(expected, 1, 1), np.roll(expected, -1, 1)
        expected = np.float32(0.25) * (left + right) + np.float32(0.5) * expected
    run(module, "ring", 3, threads, values, 9)
    np.testing.assert_allclose(values, expected, rtol=1e-5)


@pytest.mark.parametrize("tiles", [1, 2, 7])
def test_one_warp_brings_what_others_add_up(module, random, tiles):
    x, y = random.random(128 * tiles, np.float32), np.zeros(64, np.float32)
    run(module, "produce", 1, 96, x, y, tiles)
    np.testing.assert_allclose(y, x.reshape(2 * tiles, 64).sum(0), rtol=1e-5)


@pytest.fixture(scope="module", params=targets("sm80", "sm100", of="-library"))
def library(request):
    return corpus(f"library_{request.param}")


def test_the_librarys_barrier(library, random):
    values = random.random((3, 96), np.float32)
    expected = values.copy()
    for _ in range(5):
        left, right = np.roll(expected, 1, 1), np.roll(expected, -1, 1)
        expected = np.float32(0.25) * (left + right) + np.float32(0.5) * expected
    run(library, "lib_barrier", 3, 96, values, 5)
    np.testing.assert_allclose(values, expected, rtol=1e-5)


@pytest.mark.parametrize("tiles", [1, 5])
def test_the_librarys_pipeline(library, random, tiles):
    x, y = random.random(128 * tiles, np.float32), np.zeros(64, np.float32)
    run(library, "lib_pipeline", 1, 64, x, y, tiles)
    np.testing.assert_allclose(y, x.reshape(2 * tiles, 64).sum(0), rtol=1e-5)


def test_a_copy_by_a_group(library, random):
    x, y = random.random(512, np.float32), np.zeros(4, np.float32)
    run(library, "cg_copy", 4, 128, x, y, 512, dynamic=512)
    np.testing.assert_allclose(y, x.reshape(4, 128).sum(1), rtol=1e-5)


READ, WRITE, VALUE = Access.READ, Access.WRITE, Access.VALUE
INFERRED = {
    **{each[0]: (READ, READ, WRITE, VALUE, VALUE) for each in FRAGMENTS},
    "mma_half": (READ, READ, WRITE, VALUE, VALUE),
    "sums": (READ, WRITE, VALUE),
    "ring": (Access.READ_WRITE, VALUE),
    "produce": (READ, WRITE, VALUE),
}


INFERRED_OF_LIBRARY = {
    "lib_barrier": (Access.READ_WRITE, VALUE),
    "lib_pipeline": (READ, WRITE, VALUE),
    "cg_copy": (READ, Access.READ_WRITE, VALUE),
}


@pytest.mark.parametrize("target", targets(*TARGETS))
def test_what_each_kernel_does_to_memory_is_inferred(target):
    assert inferred(f"tensor_{target}") == INFERRED


@pytest.mark.parametrize("target", targets("sm80", "sm100", of="-library"))
def test_what_the_librarys_code_does_to_memory_is_inferred(target):
    assert inferred(f"library_{target}") == INFERRED_OF_LIBRARY


def inferred(name):
    parsed = parse((CORPUS / f"{name}.ptx").read_text())
    return {each.name: analyse(parsed, each.name).parameters for each in parsed.kernels}
