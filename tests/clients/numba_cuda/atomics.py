"""Atomics on global and shared memory: a histogram, extremes, compare and swap, a lock."""

from __future__ import annotations

import numpy as np
from numba import cuda, int32

BINS = 64


@cuda.jit
def histogram(data, bins):
    local = cuda.shared.array(BINS, int32)
    for i in range(cuda.threadIdx.x, BINS, cuda.blockDim.x):
        local[i] = 0
    cuda.syncthreads()
    for i in range(cuda.grid(1), data.size, cuda.gridsize(1)):
        cuda.atomic.add(local, data[i], 1)
    cuda.syncthreads()
    for i in range(cuda.threadIdx.x, BINS, cuda.blockDim.x):
        cuda.atomic.add(bins, i, local[i])


@cuda.jit
def extremes(data, found):
    i = cuda.grid(1)
    if i < data.size:
        cuda.atomic.max(found, 0, data[i])
        cuda.atomic.min(found, 1, data[i])
        cuda.atomic.add(found, 2, data[i])


@cuda.jit
def first_come(seats, winners):
    """Each thread takes the first free seat."""
    i = cuda.grid(1)
    for seat in range(seats.size):
        if cuda.atomic.cas(seats, seat, -1, i) == -1:
            winners[i] = seat
            break


@cuda.jit
def one_at_a_time(lock, total):
    """A lock that one thread of each block takes."""
    if cuda.threadIdx.x == 0:
        while cuda.atomic.cas(lock, 0, 0, 1) != 0:
            pass
        cuda.threadfence()
        total[0] += 1
        cuda.threadfence()
        cuda.atomic.exch(lock, 0, 0)


rng = np.random.default_rng(2)
data = rng.integers(0, BINS, 20_000).astype(np.int32)
bins = np.zeros(BINS, np.int32)
histogram[8, 128](data, bins)
assert (bins == np.bincount(data, minlength=BINS)).all()

values = rng.normal(size=3000)
found = np.array([-np.inf, np.inf, 0.0])
extremes[24, 128](values, found)
assert found[0] == values.max()
assert found[1] == values.min()
assert np.isclose(found[2], values.sum())

seats = np.full(100, -1, np.int32)
winners = np.full(100, -1, np.int32)
first_come[4, 25](seats, winners)
assert sorted(seats) == list(range(100))
assert (seats[winners] == np.arange(100)).all()

lock, total = np.zeros(1, np.int32), np.zeros(1, np.int64)
one_at_a_time[50, 32](lock, total)
assert total[0] == 50
print("atomics: a histogram, extremes, a hundred seats, a lock")
