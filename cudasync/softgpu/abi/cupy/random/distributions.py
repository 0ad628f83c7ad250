"""Cellar, abi. The distributions of CuPy's generators, drawn by NumPy's generators.

Each function takes NumPy's generator, the shape of the result and the parameters. NumPy raises
ValueError for parameters outside a distribution's domain. Two cases follow CuPy instead: a negative
shape of the gamma distribution gives zeros, and a sample larger than the population is all of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    Numbers = np.ndarray[Any, Any]
    Shape = tuple[int, ...]
    Distribution = Callable[..., Numbers]

_U32_MAX: Final = 0xFFFF_FFFF


def raw(source: np.random.Generator, shape: Shape) -> Numbers:
    """32 random bits in each element."""
    return interval_32(source, shape, _U32_MAX).view(np.int32)


def interval_32(source: np.random.Generator, shape: Shape, last: int) -> Numbers:
    """Integers of 32 bits from 0 to `last`."""
    return source.integers(0, last, shape, np.uint32, endpoint=True)


def interval_64(source: np.random.Generator, shape: Shape, last: int) -> Numbers:
    """Integers of 64 bits from 0 to `last`."""
    return source.integers(0, last, shape, np.uint64, endpoint=True)


def uniform(source: np.random.Generator, shape: Shape) -> Numbers:
    """Numbers in [0, 1)."""
    return source.random(shape)


def uniform_float(source: np.random.Generator, shape: Shape) -> Numbers:
    """float32 numbers in [0, 1)."""
    return source.random(shape, np.float32)


def normal(source: np.random.Generator, shape: Shape) -> Numbers:
    """The standard normal distribution."""
    return source.standard_normal(shape)


def normal_float(source: np.random.Generator, shape: Shape) -> Numbers:
    """The standard normal distribution in float32."""
    return source.standard_normal(shape, np.float32)


def exponential(source: np.random.Generator, shape: Shape) -> Numbers:
    """The standard exponential distribution, by the inverse of its distribution function."""
    return source.standard_exponential(shape, method="inv")


def gamma(source: np.random.Generator, shape: Shape, k: Numbers) -> Numbers:
    """The standard gamma distribution."""
    return source.standard_gamma(np.maximum(k, 0.0), shape)


def beta(source: np.random.Generator, shape: Shape, a: Numbers, b: Numbers) -> Numbers:
    """The beta distribution."""
    return source.beta(a, b, shape)


def binomial(source: np.random.Generator, shape: Shape, n: Numbers, p: Numbers) -> Numbers:
    """The binomial distribution."""
    return source.binomial(n, p, shape)


def geometric(source: np.random.Generator, shape: Shape, p: Numbers) -> Numbers:
    """The geometric distribution: the number of trials up to the first success."""
    return source.geometric(p, shape)


def hypergeometric(
    source: np.random.Generator, shape: Shape, good: Numbers, bad: Numbers, sample: Numbers
) -> Numbers:
    """The hypergeometric distribution: the good ones in a sample without replacement."""
    return source.hypergeometric(good, bad, np.clip(sample, 0, good + bad), shape)


def logseries(source: np.random.Generator, shape: Shape, p: Numbers) -> Numbers:
    """The logarithmic series distribution."""
    return source.logseries(p, shape)


def poisson(source: np.random.Generator, shape: Shape, rate: Numbers) -> Numbers:
    """The Poisson distribution."""
    return source.poisson(rate, shape)
