"""Numbers of CuPy's generators have the distributions that were asked for.

Each distribution is compared with its mean and variance by formula, and with NumPy's legacy
generator, whose algorithms are other ones, by Kolmogorov and Smirnov's test.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from cudasync.softgpu.abi.cupy.random import distributions as d
from cudasync.softgpu.abi.cupy.random.bit_streams import KINDS, STATE_BYTES, BitStream, load
from cudasync.softgpu.core.driver_types.result_codes import DriverFailure

COUNT = 20_000
# A right generator is rejected once in 20,000 comparisons by the statistic, and at six standard
# deviations by the moments.
_STATISTIC = math.sqrt(-math.log(5e-5 / 2) / 2)
_DEVIATIONS = 6

LOG = -math.log(0.6)  # of 1 - p, for the logarithmic series with p = 0.4

# Distribution, parameters, mean, variance, and the legacy generator's method.
CASES = {
    "uniform": (d.uniform, (), 1 / 2, 1 / 12, "random_sample"),
    "uniform_float": (d.uniform_float, (), 1 / 2, 1 / 12, "random_sample"),
    "normal": (d.normal, (), 0, 1, "standard_normal"),
    "normal_float": (d.normal_float, (), 0, 1, "standard_normal"),
    "exponential": (d.exponential, (), 1, 1, "standard_exponential"),
    "gamma, small": (d.gamma, (0.5,), 0.5, 0.5, "standard_gamma"),
    "gamma, large": (d.gamma, (7.0,), 7, 7, "standard_gamma"),
    "beta": (d.beta, (2.0, 5.0), 2 / 7, 10 / (49 * 8), "beta"),
    "beta, below one": (d.beta, (0.5, 0.25), 2 / 3, 0.125 / (0.5625 * 1.75), "beta"),
    "binomial": (d.binomial, (10, 0.3), 3, 2.1, "binomial"),
    "binomial, large": (d.binomial, (1000, 0.4), 400, 240, "binomial"),
    "geometric": (d.geometric, (0.2,), 5, 20, "geometric"),
    "hypergeometric": (
        d.hypergeometric, (30, 10, 12), 9, 9 * 0.25 * 28 / 39, "hypergeometric"
    ),
    "logseries": (
        d.logseries,
        (0.4,),
        0.4 / (0.6 * LOG),
        0.4 * (LOG - 0.4) / (0.36 * LOG**2),
        "logseries",
    ),
    "poisson": (d.poisson, (3.5,), 3.5, 3.5, "poisson"),
    "poisson, large": (d.poisson, (60.0,), 60, 60, "poisson"),
}  # fmt: skip


def drawn(distribution, parameters, *, seed=11, draws=0, kind=0, count=COUNT):
    source = BitStream(kind, seed, draws).generator()
    return distribution(source, (count,), *(np.asarray(each) for each in parameters))


def faults(numbers, mean, variance, reference):
    """The ways in which numbers differ from the distribution; none if they are right."""
    found, values = [], numbers.astype(float)
    if abs(values.mean() - mean) > _DEVIATIONS * math.sqrt(variance / values.size):
        found.append("mean")
    # The deviation of a variance, by the sample's own fourth moment.
    spread = math.sqrt(((values - values.mean()) ** 2).var() / values.size)
    if abs(values.var() - variance) > _DEVIATIONS * spread:
        found.append("variance")
    if statistic(values, reference) > _STATISTIC:
        found.append("distribution")
    return found


def statistic(one, other):
    """Kolmogorov and Smirnov's two-sample statistic, scaled by the numbers of samples."""
    both = np.concatenate([one, other])
    below = [np.searchsorted(np.sort(each), both, "right") / each.size for each in (one, other)]
    scale = math.sqrt(one.size * other.size / (one.size + other.size))
    return scale * np.abs(below[0] - below[1]).max()


def legacy(method, parameters):
    return getattr(np.random.RandomState(5), method)(*parameters, size=COUNT).astype(float)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("kind", range(len(KINDS)), ids=KINDS)
@pytest.mark.parametrize("name", CASES)
def test_numbers_have_the_distribution(name, kind):
    distribution, parameters, mean, variance, method = CASES[name]
    numbers = drawn(distribution, parameters, kind=kind)
    assert numbers.shape == (COUNT,)
    assert faults(numbers, mean, variance, legacy(method, parameters)) == []


WRONG = {
    "beta": (lambda s, shape, a, b: d.beta(s, shape, b, a), "mean"),
    "hypergeometric": (lambda s, shape, g, b, n: d.hypergeometric(s, shape, b, g, n), "mean"),
    "exponential": (lambda s, shape: 1.1 * d.exponential(s, shape), "mean"),
    "normal": (lambda s, shape: 1.1 * d.normal(s, shape), "variance"),
    # Mean and variance are right.
    "uniform": (lambda s, shape: (d.normal(s, shape) / math.sqrt(12)) + 0.5, "distribution"),
    "poisson": (lambda s, shape, rate: np.rint(s.normal(rate, np.sqrt(rate), shape)),
                "distribution"),
    "geometric": (lambda s, shape, p: d.geometric(s, shape, p) - 1, "mean"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_distribution_is_found(name):
    _, parameters, mean, variance, method = CASES[name]
    wrong, fault = WRONG[name]
    found = faults(drawn(wrong, parameters), mean, variance, legacy(method, parameters))
    assert fault in found


@pytest.mark.parametrize("last", [0, 1, 5, 2**31, 2**32 - 1, 2**40, 2**64 - 1])
def test_integers_reach_both_ends_and_no_further(last):
    interval = d.interval_32 if last < 2**32 else d.interval_64
    numbers = interval(BitStream(0, 3).generator(), (COUNT,), last)
    assert numbers.max() <= last
    if last < 10:
        counts = np.bincount(numbers.astype(int), minlength=last + 1)
        expected = COUNT / (last + 1)
        assert (abs(counts - expected) <= _DEVIATIONS * math.sqrt(expected)).all()
    else:
        share = numbers.astype(float) / last
        assert faults(share, 1 / 2, 1 / 12, legacy("random_sample", ())) == []


def test_raw_bits_are_each_set_half_of_the_time():
    words = d.raw(BitStream(2, 9).generator(), (COUNT,)).view(np.uint32)
    for bit in range(32):
        ones = int((words >> np.uint32(bit) & 1).sum())
        assert abs(ones - COUNT / 2) < _DEVIATIONS * math.sqrt(COUNT / 4), bit


def test_parameters_at_the_ends_of_a_domain():
    assert (drawn(d.gamma, (np.array([-1.0, 0.0]),), count=2) == 0).all()
    assert (drawn(d.geometric, (1.0,)) == 1).all()
    assert (drawn(d.binomial, (4, 1.0)) == 4).all()
    assert (drawn(d.poisson, (0.0,)) == 0).all()
    # A sample of more than there are is the whole population; none is none.
    assert (drawn(d.hypergeometric, (5, 10, 16)) == 5).all()
    assert (drawn(d.hypergeometric, (5, 10, 0)) == 0).all()
    with pytest.raises(ValueError, match="lam < 0"):
        drawn(d.poisson, (-1.0,))


def test_seed_kind_and_draw_give_a_sequence_each():
    def first(*stream):
        return tuple(BitStream(*stream).generator().random(4))

    streams = [
        (kind, seed, draws) for kind in range(3) for seed in (0, 1, 2**40) for draws in (0, 1, 7)
    ]
    assert len({first(*stream) for stream in streams}) == len(streams)
    assert first(1, 5, 2) == first(1, 5, 2)
    assert first(0, 5, 1) == tuple(BitStream(0, 5).after().generator().random(4))


def test_a_state_is_read_as_it_was_written_and_nothing_else_is_one():
    words = np.zeros(STATE_BYTES // 8, np.uint64)
    with pytest.raises(DriverFailure, match="never initialised"):
        load(words)
    BitStream(2, 2**64 - 1, 41).save(words)
    assert load(words) == BitStream(2, 2**64 - 1, 41)
    words[1] = 3
    with pytest.raises(DriverFailure, match="overwritten"):
        load(words)
