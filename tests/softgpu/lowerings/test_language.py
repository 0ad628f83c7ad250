"""CUDA C++ features, compiled by NVRTC for each kind of device, give NumPy's results."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest
from helpers.lowering import bare_launch

from cudasync.ptx import parse
from cudasync.softgpu import jit, oracle
from cudasync.softgpu.interface.launch import OutcomeKind

CORPUS = Path(__file__).parents[1] / "corpus"
TARGETS = (75, 80, 90, 100, 120)
THREADS = 64
I = np.arange(THREADS)  # noqa: E741
# The oracle runs the code for one old and one new target; the targets between differ little.
ROOMS = [(jit, target) for target in TARGETS] + [(oracle, 75), (oracle, 120)]
everywhere = pytest.mark.parametrize(
    ("room", "target"), ROOMS, ids=[f"{room.__name__.split('.')[-1]}-{n}" for room, n in ROOMS]
)


@cache
def compiled(room, target):
    return room.compile_module(parse((CORPUS / f"language_sm{target}.ptx").read_text()))


def run(room, target, name, *arrays):
    """Run a kernel of one block with the addresses of the module's variables filled in."""
    module = compiled(room, target)
    variables = bare_launch.make_variables(module)
    outcome = bare_launch.run(
        module, name, grid=(1,), block=(THREADS,), args=list(arrays), variables=variables
    )
    assert outcome.kind is OutcomeKind.DONE, outcome.fault


def empty(count=THREADS, kind=np.int32):
    return bare_launch.aligned(np.zeros(count, kind))


def fibonacci(n):
    return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)


def popcount(x):
    return np.array([int(v).bit_count() for v in x])


def choice(i):
    reverse = int(f"{i:032b}"[::-1], 2)
    table = [5, i * 7, i ^ 77, i // 3, i - 100, i.bit_count(), reverse >> 20, None, -1]
    # Bytes 2, 0, 7 and 4 of (0x01020304, i), the lowest first: bytes 0 to 3 are those of i.
    table[7] = int.from_bytes((i << 16 >> 32 & 0xFF, i & 0xFF, 0x01, 0x04), "little")
    return table[i % 9]


EXPECTED = {
    "structs": np.where(I & 1, (I + 1.0) ** 2 * 3, (I + 1.0) * 3).astype(np.float32),
    "pointers": np.choose(I % 3, [I + 7, I * 7, I - 7]),
    "recursive": np.array([fibonacci(i % 10) for i in range(THREADS)]),
    "virtuals": np.where(I & 1, I + 1, 2 * I + 2),
    "initialised": (30 + (I % 4 * 10 + 10) * (I % 4 + 0.5)).astype(np.float32),
    "barriers": (63 - I) * 100 + 2 * (63 - I),
    "choices": np.array([choice(i) for i in range(THREADS)]),
}


@pytest.mark.sampled(3)
@everywhere
@pytest.mark.parametrize("name", EXPECTED)
def test_a_kernel_of_the_language_gives_what_numpy_gives(room, target, name):
    found = empty(kind=EXPECTED[name].dtype if EXPECTED[name].dtype == np.float32 else np.int32)
    run(room, target, name, found)
    np.testing.assert_array_equal(found, EXPECTED[name])


@everywhere
def test_warps_agree_count_and_match(room, target):
    found = empty()
    run(room, target, "warps", found)
    lane = I & 31
    same = np.array([sum(other // 3 == each // 3 for other in range(32)) for each in lane])
    bits = [k for k in range(16) if 0xF0F0 >> k & 1]
    second = [([k for k in bits if k >= each] + [-1, -1])[1] for each in lane]
    second = [
        -1 if sum(k >= each for k in bits) < 2 else s for each, s in zip(lane, second, strict=True)
    ]
    np.testing.assert_array_equal(found, 496 + same + 2 + 32 + 100 + second)


@everywhere
def test_halves_round_as_numpy_rounds_them(room, target):
    values = np.linspace(-7, 9, THREADS).astype(np.float32)
    half, pair, back = (
        empty(kind=np.float16),
        empty(2 * THREADS, np.float16),
        empty(kind=np.float32),
    )
    run(room, target, "halves", bare_launch.aligned(values), half, pair, back)
    x = values.astype(np.float16)
    np.testing.assert_array_equal(half, x * x + np.float16(1))
    both = np.stack([x, -x], axis=1)
    np.testing.assert_array_equal(pair.reshape(-1, 2), both * (both + both))
    bits = values.view(np.uint32)
    brain = ((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000).view(np.float32)
    np.testing.assert_array_equal(back, brain - x.astype(np.float32))


@everywhere
def test_bytes_and_halves_of_a_word_are_computed_apart(room, target):
    a, b = np.random.default_rng(1).integers(0, 2**32, (2, THREADS), np.uint32)
    found = empty(4 * THREADS, np.uint32)
    run(room, target, "bytes", bare_launch.aligned(a), bare_launch.aligned(b), found)
    x, y = (each.view(np.uint8).reshape(-1, 4) for each in (a, b))
    difference = np.abs(x.astype(int) - y).astype(np.uint8)
    product = (x.view(np.int8).astype(int) * y.view(np.int8)).sum(axis=1)
    most = np.maximum(a.view(np.int16), b.view(np.int16)).view(np.uint32)
    expected = [
        (x + y).view(np.uint32)[:, 0],
        difference.view(np.uint32)[:, 0],
        most,
        (difference.sum(axis=1, dtype=np.int64) + product + 7).astype(np.uint32),
    ]
    np.testing.assert_array_equal(found.reshape(-1, 4), np.stack(expected, axis=1))


@everywhere
def test_integers_of_128_bits_carry_and_divide(room, target):
    a = np.random.default_rng(2).integers(0, 2**64, THREADS, np.uint64)
    found = empty(2 * THREADS, np.uint64)
    run(room, target, "wide", bare_launch.aligned(a), found)
    whole = [((int(v) << 64 | (~int(v) & 2**64 - 1)) * 3 + 7) % 2**128 // 11 for v in a]
    expected = [[w & 2**64 - 1, w >> 64] for w in whole]
    assert found.reshape(-1, 2).tolist() == expected
