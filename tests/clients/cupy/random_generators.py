"""Random generators: their bit streams, distributions, shapes, types and errors."""

from __future__ import annotations

import cupy as cp
import numpy as np

KINDS = (cp.random.XORWOW, cp.random.MRG32k3a, cp.random.Philox4x3210)
DISTRIBUTIONS = {
    # With the mean and the variance.
    "standard_normal": ((), 0, 1),
    "standard_exponential": ((), 1, 1),
    "exponential": ((2.0,), 2, 4),
    "standard_gamma": ((3.0,), 3, 3),
    "gamma": ((3.0, 2.0), 6, 12),
    "beta": ((2.0, 3.0), 0.4, 0.04),
    "binomial": ((10, 0.3), 3, 2.1),
    "geometric": ((0.25,), 4, 12),
    "hypergeometric": ((6, 4, 5), 3, 2 / 3),
    "logseries": (
        (0.5,),
        0.5 / (0.5 * np.log(2)),
        0.5 * (np.log(2) - 0.5) / (0.5 * np.log(2)) ** 2,
    ),
    "poisson": ((3.0,), 3, 3),
    "power": ((2.0,), 2 / 3, 1 / 18),
    "chisquare": ((4.0,), 4, 8),
    "f": ((4.0, 20.0), 20 / 18, 2 * 400 * 22 / (4 * 18**2 * 16)),
    "random": ((), 0.5, 1 / 12),
    "uniform": ((2.0, 8.0), 5, 3),
    "integers": ((1, 7), 3.5, 35 / 12),
}


def refused(error, call, *arguments, **named):
    try:
        call(*arguments, **named)
    except error as problem:
        return str(problem)
    raise AssertionError(f"{call} took {arguments}")


for kind in KINDS:
    bits = kind(seed=5)
    first = cp.asnumpy(bits.random_raw(100))
    assert first.dtype == np.int32
    assert (first == cp.asnumpy(kind(seed=5).random_raw(100))).all()
    assert (first != cp.asnumpy(bits.random_raw(100))).any()
    assert (first != cp.asnumpy(kind(seed=6).random_raw(100))).any()
    assert bits.random_raw(10, output=False) is None

count = 4000
rng = cp.random.default_rng(7)
assert cp.random.default_rng(rng) is rng
assert isinstance(rng, cp.random.Generator)
for name, (arguments, mean, variance) in DISTRIBUTIONS.items():
    drawn = getattr(rng, name)(*arguments, size=(count // 4, 4))
    again = getattr(cp.random.default_rng(7), name)(*arguments, size=(count // 4, 4))
    assert drawn.shape == again.shape == (count // 4, 4)
    values = cp.asnumpy(drawn).astype(float)
    assert abs(values.mean() - mean) < 6 * np.sqrt(variance / count), name
    assert 0.7 * variance < values.var() < 1.5 * variance, name
    if name == "standard_normal":
        assert (values == cp.asnumpy(again)).all()
mixture = cp.asnumpy(rng.dirichlet(cp.array([1.0, 2.0, 5.0]), size=500))
assert mixture.shape == (500, 3)
assert np.allclose(mixture.sum(axis=1), 1)
assert np.allclose(mixture.mean(axis=0), [1 / 8, 2 / 8, 5 / 8], atol=0.05)

# Shapes come from the parameters, which are arrays in device memory with any strides.
rates = cp.array([[1.0, 1000.0], [10.0, 1e6]])
drawn = cp.asnumpy(rng.poisson(rates.T))
assert drawn.shape == (2, 2)
assert (abs(drawn - cp.asnumpy(rates).T) <= 8 * np.sqrt(cp.asnumpy(rates).T)).all()
assert rng.beta(2.0, cp.ones((3, 1)), size=(3, 5)).shape == (3, 5)
assert rng.standard_normal().shape == ()
assert rng.random(0).shape == (0,)
assert rng.standard_gamma(cp.empty((1, 0))).shape == (1, 0)

# Types, and arrays that the caller brings.
assert rng.random(3, dtype=np.float32).dtype == np.float32
assert rng.integers(0, 2**40, 3).dtype == np.int64
assert rng.integers(-3, 3, 100, dtype=np.int8, endpoint=True).dtype == np.int8
wide = cp.asnumpy(rng.integers(2**34, 2**40, 100))
assert wide.min() >= 2**34
assert wide.max() < 2**40
out = cp.zeros((3, 2))
for name, arguments in (
    ("random", ()),
    ("standard_normal", ()),
    ("standard_exponential", ()),
    ("standard_gamma", (2.0,)),
):
    out.fill(-9)
    assert getattr(rng, name)(*arguments, out=out) is out
    assert float(out.min()) > -9
    short = cp.zeros((3, 2), np.float32)
    refused(TypeError, getattr(rng, name), *arguments, size=(3, 2), out=short)
    refused(ValueError, getattr(rng, name), *arguments, size=(3, 3), out=out)

assert refused(TypeError, rng.beta, "2", 1.0) == "a is required to be a cupy.ndarray or a scalar"
refused(TypeError, rng.standard_normal, dtype=np.int32)
refused(NotImplementedError, rng.standard_exponential, method="zig")
assert refused(ValueError, rng.integers, 5, 5) == "low >= high"
refused(ValueError, rng.integers, 300, dtype=np.int8)
refused(ValueError, rng.hypergeometric, -1, 2, 3)

# A captured draw goes on from launch to launch.
stream = cp.cuda.Stream(non_blocking=True)
with stream:
    source, numbers = cp.random.Generator(cp.random.XORWOW(9)), cp.empty(8)
    stream.begin_capture()
    source.standard_normal(out=numbers)
    graph = stream.end_capture()
    launches = []
    for _ in range(3):
        graph.launch(stream)
        launches.append(tuple(numbers.get(stream=stream).tolist()))
assert len(set(launches)) == 3
eager = cp.random.Generator(cp.random.XORWOW(9))
assert launches == [tuple(eager.standard_normal(8).tolist()) for _ in range(3)]

print("random_generators: distributions, seeds, shapes and errors")
