"""Random numbers: Philox's known answers, equal on all devices, in the order of the calls."""

from __future__ import annotations

import copy
import pickle
import statistics
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import cudasync as cs
from cudasync import xp
from cudasync.array.elementwise import compilation
from cudasync.array.functions import quantile as quantiles
from cudasync.array.functions.helpers import HELPERS
from cudasync.array.functions.philox import high_product, philox
from cudasync.random import Generator, expressions
from cudasync.testing import HostLatch

# Random123's known answers for philox4x32 with 10 rounds: counter, key, result. The words have 32
# bits, the lowest first.
KNOWN = [
    ([0] * 4, [0] * 2, [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
    ([0xFFFFFFFF] * 4, [0xFFFFFFFF] * 2, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
    (
        [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
        [0xA4093822, 0x299F31D0],
        [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
    ),
]


def on_device(text, key, number, attempt):
    source = f"""{text}
extern "C" __global__ void one(
    unsigned long long* found, unsigned long long k, unsigned long long n, unsigned long long a)
{{
    Random drawn = philox(k, n, a);
    found[0] = drawn.low;
    found[1] = drawn.high;
}}"""
    found = xp.zeros(2, dtype=xp.uint64)
    cs.Module.from_cuda(source).kernel("one")[1, 1](found, key, number, attempt)
    return found.numpy()


def on_host(text, key, number, attempt):
    found = philox(key, np.array([number], np.uint64), attempt)
    return np.concatenate(found)


def is_known(compute, text):
    return [
        list(compute(text, *(k[0] | k[1] << 32, c[0] | c[1] << 32, c[2] | c[3] << 32)))
        == [r[0] | r[1] << 32, r[2] | r[3] << 32]
        for c, k, r in KNOWN
    ]


@pytest.mark.parametrize("compute", [on_device, on_host])
def test_philox_gives_the_known_answers(compute):
    assert all(is_known(compute, HELPERS["philox"]))


@pytest.mark.parametrize(
    "plant", [("round < 10", "round < 9"), ("^ b ^ k", "^ b ^ l"), ("0xBB67AE85", "0xBB67AE84")]
)
def test_a_philox_that_is_another_is_found(plant):
    assert not all(is_known(on_device, HELPERS["philox"].replace(*plant)))


PLACES = [*range(3), "cpu"]
CALLS = {
    "random": lambda g, shape, **to: g.random(shape, **to),
    "double": lambda g, shape, **to: g.random(shape, dtype="f8", **to),
    "uniform": lambda g, shape, **to: g.uniform(-3.7, 1e5, shape, **to),
    "normal": lambda g, shape, **to: g.normal(1.5, 0.3, shape, **to),
    "normal double": lambda g, shape, **to: g.normal(-2, 7, shape, dtype="f8", **to),
    "integers": lambda g, shape, **to: g.integers(-5, 1000, shape, **to),
    "all integers": lambda g, shape, **to: g.integers(-(1 << 63), 1 << 63, shape, **to),
    "anew": lambda g, shape, **to: g.integers(0, 3 << 62, shape, dtype="u8", **to),
    "bytes": lambda g, shape, **to: g.integers(-128, 128, shape, dtype="i1", **to),
}
# The last shape has more elements than the CPU handles at once.
LENGTHS = [(), (1,), (700,), (3, 0), (4, 5), (9000,)]
PROGRAMS = st.lists(
    st.tuples(st.sampled_from(sorted(CALLS)), st.sampled_from(LENGTHS)),
    min_size=1,
    max_size=4,
)


@given(PROGRAMS, st.integers(0, (1 << 64) - 1), st.sampled_from([0, 5, 1 << 32, (1 << 64) - 3]))
def test_numbers_are_equal_on_every_device_and_the_cpu(program, seed, counter):
    found = []
    for place in [each for each in PLACES if each == "cpu" or each < cs.device_count()]:
        g = Generator(seed)
        g.state = {"seed": seed, "counter": counter}
        made = [CALLS[name](g, shape, device=place) for name, shape in program]
        assert [each.shape for each in made] == [shape for _, shape in program]
        found.append(([each.numpy().tobytes() for each in made], g.state))
    assert all(each == found[0] for each in found)


def test_a_product_that_is_fused_with_its_sum_is_found(monkeypatch):
    """It rounds once where NumPy rounds twice, so some normal numbers differ from the CPU's."""
    monkeypatch.setattr(compilation, "_OPTIONS", ("--fmad=true",))
    monkeypatch.setattr(compilation, "_kernels", {})
    expressions.normal.cache_clear()
    try:
        found, expected = (
            Generator(1).normal(shape=700, dtype="f8", device=place).numpy() for place in (0, "cpu")
        )
    finally:
        expressions.normal.cache_clear()
    assert found.tolist() != expected.tolist()
    np.testing.assert_allclose(found, expected, rtol=1e-13)


def test_a_call_takes_as_many_numbers_as_it_has_elements():
    whole = Generator(3).random(20).numpy()
    g = Generator(3)
    parts = [g.random(5), g.random((2, 3)), g.random(()), g.random(8)]
    assert np.concatenate([each.numpy().ravel() for each in parts]).tolist() == whole.tolist()
    assert g.state == {"seed": 3, "counter": 20}


def test_the_order_of_calls_decides_and_not_that_of_execution():
    g, latch = Generator(3), HostLatch()
    first, second = xp.zeros(4, device="cpu"), xp.zeros(4, device="cpu")
    cs.engine().push(latch.wait, writes=[first])
    first += g.random(4, device="cpu")
    second += g.random(4, device="cpu")
    later = second.numpy()
    latch.release()
    assert [*first.numpy(), *later] == Generator(3).random(8).numpy().tolist()


def test_a_state_is_read_restored_and_sent():
    g = Generator(11)
    g.normal(shape=100)
    state, copies = g.state, (copy.deepcopy(g), pickle.loads(pickle.dumps(g)))
    expected = g.normal(shape=5).numpy().tolist()
    g.state = state
    for each in (g, *copies):
        assert each.normal(shape=5).numpy().tolist() == expected
    assert Generator().state["seed"] != Generator().state["seed"]


def test_threads_share_a_generator_and_no_number():
    g, found = Generator(5), []

    def draw():
        for _ in range(20):
            found.append(g.random(7, dtype="f8", device="cpu"))

    threads = [threading.Thread(target=draw) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    drawn = np.sort(np.concatenate([each.numpy() for each in found]))
    assert drawn.tolist() == np.sort(Generator(5).random(560, dtype="f8").numpy()).tolist()


def surprise(counts, expected=None):
    """Chi squared, in standard deviations from its mean."""
    counts = np.asarray(counts, float)
    even = counts.sum() / counts.size if expected is None else expected
    freedom = counts.size - 1
    return (((counts - even) ** 2 / even).sum() - freedom) / np.sqrt(2 * freedom)


COUNT = 60_000


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_uniform_numbers_are_uniform(dtype):
    drawn = Generator(1).random(COUNT, dtype=dtype).numpy()
    assert 0 <= drawn.min() < 1e-3 < 1 - 1e-3 < drawn.max() < 1
    assert abs(surprise(np.histogram(drawn, 100, (0, 1))[0])) < 4
    # Consecutive numbers, in pairs.
    assert abs(surprise(np.histogram2d(*drawn.reshape(2, -1), 20, [(0, 1)] * 2)[0])) < 4
    assert abs(np.corrcoef(drawn[1:], drawn[:-1])[0, 1]) < 4 / np.sqrt(COUNT)
    bits = np.floor(drawn * (1 << 16)).astype(np.int64)
    for bit in range(16):
        assert abs((bits >> bit & 1).mean() - 0.5) < 4 * 0.5 / np.sqrt(COUNT)


def test_normal_numbers_are_normal():
    drawn = Generator(2).normal(3, 2, COUNT, dtype="f8").numpy()
    assert abs(drawn.mean() - 3) < 4 * 2 / np.sqrt(COUNT)
    assert abs(drawn.std() / 2 - 1) < 4 / np.sqrt(2 * COUNT)
    parts = statistics.NormalDist(3, 2).quantiles(100)
    assert abs(surprise(np.bincount(np.searchsorted(parts, drawn), minlength=100))) < 4


FAR_OUT = np.concatenate(
    [
        np.array([2.0**-53, 3 * 2.0**-53, 1e-15, 1e-12, 1e-11, 1e-5, 0.075, 0.0749999, 0.0750001]),
        (np.arange(2000) + 0.5) / 2000,
    ]
)


def farthest(u):
    """The largest relative difference between our quantiles and the standard library's."""
    expected = np.array([statistics.NormalDist().inv_cdf(each) for each in u])
    return np.max(np.abs(quantiles.quantile(u) / expected - 1))


def test_the_quantile_is_right_from_tail_to_tail(monkeypatch):
    u = np.concatenate([FAR_OUT, 1 - FAR_OUT])
    assert farthest(u) < 1e-14
    planted = ((*quantiles._FAR[0][:-1], 6.6579046435), quantiles._FAR[1])
    monkeypatch.setattr(quantiles, "_FAR", planted)
    assert farthest(u) > 1e-14


def residues():
    """The count of each residue modulo 3. A quarter of these integers needs a second draw."""
    drawn = Generator(4).integers(0, 3 << 62, 3000, dtype="u8").numpy()
    return np.bincount((drawn % 3).astype(int), minlength=3)


def test_no_integer_is_likelier_than_another():
    drawn = Generator(3).integers(-2, 4, COUNT).numpy()
    assert (drawn.min(), drawn.max()) == (-2, 3)
    assert abs(surprise(np.bincount(drawn + 2))) < 4
    assert abs(surprise(residues())) < 4


def test_integers_that_are_not_drawn_anew_are_found(monkeypatch):
    planted = HELPERS["random_below"].replace("(0 - range) % range", "0")
    monkeypatch.setitem(HELPERS, "random_below", planted)
    monkeypatch.setattr(compilation, "_kernels", {})
    expressions.integers.cache_clear()
    try:
        assert abs(surprise(residues())) > 10
    finally:
        expressions.integers.cache_clear()


@given(st.integers(0, (1 << 64) - 1), st.integers(1, (1 << 64) - 1))
def test_the_high_half_of_a_product_is_exact(number, by):
    assert int(high_product(np.array([number], np.uint64), by)[0]) == number * by >> 64


def test_integers_reach_both_ends_and_no_further():
    g = Generator(8)
    assert set(g.integers(3, shape=200).numpy()) == {0, 1, 2}
    assert set(g.integers(1, 3, 200, endpoint=True).numpy()) == {1, 2, 3}
    assert set(g.integers(255, 256, 5, dtype="u1").numpy()) == {255}
    assert g.integers(-(1 << 63), -(1 << 63), (), endpoint=True).item() == -(1 << 63)


def test_a_permutation_has_each_number_once_and_no_order_more_often():
    for place in (0, "cpu"):
        found = Generator(9).permutation(1000, device=place)
        assert found.dtype == xp.int64
        assert sorted(found.numpy()) == list(range(1000))
        assert found.numpy().tolist() == Generator(9).permutation(1000).numpy().tolist()
    g = Generator(10)
    orders = [tuple(g.permutation(3, device="cpu").numpy()) for _ in range(300)]
    counts = [orders.count(each) for each in sorted(set(orders))]
    assert len(counts) == 6
    assert abs(surprise(counts)) < 4
    assert g.permutation(0).shape == (0,)


def test_a_shape_may_stand_first():
    for name in ("normal", "uniform"):
        first, named = (getattr(Generator(7), name) for _ in range(2))
        for shape in ((3, 4), [5], ()):
            x, y = first(shape), named(shape=shape)
            assert x.shape == y.shape == tuple(shape)
            assert bool(xp.all(x == y))
    x, y = Generator(7).normal((3, 4), scale=2), Generator(7).normal(0, 2, (3, 4))
    assert bool(xp.all(x == y))


WRONG = [
    (lambda g: g.normal((2, 3), 1, (4,)), TypeError, "two shapes"),
    (lambda g: g.uniform((2, -3)), ValueError, "negative"),
    (lambda g: g.random(-1), ValueError, "negative"),
    (lambda g: g.random(2.5), TypeError, "integer"),
    (lambda g: g.random(3, dtype="i4"), TypeError, "float32 or float64, not int32"),
    (lambda g: g.random(3, dtype="f2"), TypeError, "float32 or float64, not float16"),
    (lambda g: g.random(3, device=99), ValueError, "99"),
    (lambda g: g.random(1 << 42), MemoryError, "in parts"),
    (lambda g: g.uniform(2, 1), ValueError, "low <= high"),
    (lambda g: g.uniform(0, float("inf")), ValueError, "finite"),
    (lambda g: g.uniform(float("nan"), 1), ValueError, "finite"),
    (lambda g: g.normal(0, -1), ValueError, "scale >= 0"),
    (lambda g: g.normal(float("nan")), ValueError, "finite"),
    (lambda g: g.integers(0), ValueError, "no integer from 0 to -1"),
    (lambda g: g.integers(5, 5), ValueError, "no integer from 5 to 4"),
    (lambda g: g.integers(0, 257, dtype="u1"), ValueError, "uint8 cannot represent"),
    (lambda g: g.integers(-1, 2, dtype="u8"), ValueError, "uint64 cannot represent"),
    (lambda g: g.integers(3, dtype="f4"), TypeError, "integer dtype"),
    (lambda g: g.integers(3, dtype=bool), TypeError, "integer dtype"),
    (lambda g: g.integers(2.5), TypeError, "integer"),
    (lambda g: g.permutation(-1), ValueError, "negative"),
    (lambda g: g.permutation([1, 2]), TypeError, "integer"),
    (lambda g: Generator(-1), ValueError, "seed is from 0"),
    (lambda g: Generator(1 << 64), ValueError, "seed is from 0"),
    (lambda g: Generator(1.5), TypeError, "integer"),
    (lambda g: setattr(g, "state", {"seed": 1}), ValueError, "the keys seed and counter"),
    (lambda g: setattr(g, "state", {"seed": 1, "counter": -1}), ValueError, "counter is from 0"),
]


@pytest.mark.parametrize("number", range(len(WRONG)))
def test_a_wrong_call_is_refused_and_takes_no_number(number):
    call, error, says = WRONG[number]
    g = Generator(7)
    with pytest.raises(error, match=says):
        call(g)
    assert g.state == {"seed": 7, "counter": 0}
