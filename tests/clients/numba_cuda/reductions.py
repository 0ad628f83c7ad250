"""cuda.reduce, warp intrinsics, random numbers, generalised ufuncs."""

from __future__ import annotations

import numpy as np
from numba import cuda, float32, guvectorize, int32
from numba.cuda.random import create_xoroshiro128p_states, xoroshiro128p_uniform_float32


@cuda.reduce
def add(a, b):
    return a + b


greatest = cuda.Reduce(lambda a, b: max(a, b))


@cuda.jit
def warp_sums(data, sums):
    i = cuda.grid(1)
    value = data[i]
    for offset in (16, 8, 4, 2, 1):
        value += cuda.shfl_down_sync(0xFFFFFFFF, value, offset)
    even = cuda.ballot_sync(0xFFFFFFFF, data[i] % 2 == 0)
    if cuda.laneid == 0:
        sums[i // 32, 0] = value
        sums[i // 32, 1] = cuda.popc(even)


@cuda.jit
def estimate_pi(states, hits, rounds):
    i = cuda.grid(1)
    count = int32(0)
    for _ in range(rounds):
        x = xoroshiro128p_uniform_float32(states, i)
        y = xoroshiro128p_uniform_float32(states, i)
        if x * x + y * y <= float32(1):
            count += 1
    hits[i] = count


@guvectorize(["void(float64[:], float64[:])"], "(n)->()", target="cuda")
def mean(row, out):
    total = 0.0
    for value in row:
        total += value
    out[0] = total / row.size


rng = np.random.default_rng(3)
numbers = rng.integers(-1000, 1000, 4321)
assert add(numbers) == numbers.sum()
assert add(numbers, init=10) == numbers.sum() + 10
assert greatest(numbers) == numbers.max()

data = rng.integers(0, 100, 256).astype(np.int32)
sums = np.zeros((8, 2), np.int32)
warp_sums[2, 128](data, sums)
assert (sums[:, 0] == data.reshape(8, 32).sum(axis=1)).all()
assert (sums[:, 1] == (data.reshape(8, 32) % 2 == 0).sum(axis=1)).all()

states = create_xoroshiro128p_states(256, seed=7)
hits = np.zeros(256, np.int32)
estimate_pi[2, 128](states, hits, 200)
assert abs(4 * hits.sum() / (256 * 200) - np.pi) < 0.05

table = rng.normal(size=(40, 25))
assert np.allclose(mean(table), table.mean(axis=1))
print("reductions: sums, a maximum, warps, pi, means of rows")
