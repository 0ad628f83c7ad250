"""Tiles in shared memory, static and dynamic, with barriers: a product of matrices, a scan."""

from __future__ import annotations

import numpy as np
from numba import cuda, float32, int32

TILE = 16


@cuda.jit
def matmul(a, b, c):
    left = cuda.shared.array((TILE, TILE), float32)
    right = cuda.shared.array((TILE, TILE), float32)
    row, column = cuda.grid(2)
    y, x = cuda.threadIdx.x, cuda.threadIdx.y
    total = float32(0)
    for tile in range((a.shape[1] + TILE - 1) // TILE):
        inner = tile * TILE
        left[y, x] = 0
        right[y, x] = 0
        if row < a.shape[0] and inner + x < a.shape[1]:
            left[y, x] = a[row, inner + x]
        if column < b.shape[1] and inner + y < b.shape[0]:
            right[y, x] = b[inner + y, column]
        cuda.syncthreads()
        for k in range(TILE):
            total += left[y, k] * right[k, x]
        cuda.syncthreads()
    if row < c.shape[0] and column < c.shape[1]:
        c[row, column] = total


@cuda.jit
def scan(data):
    """Prefix sums of one block, in dynamic shared memory."""
    partial = cuda.shared.array(0, int32)
    i = cuda.threadIdx.x
    partial[i] = data[i]
    offset = 1
    while offset < cuda.blockDim.x:
        cuda.syncthreads()
        value = partial[i]
        if i >= offset:
            value += partial[i - offset]
        cuda.syncthreads()
        partial[i] = value
        offset *= 2
    data[i] = partial[i]


@cuda.jit
def reversed_locally(data):
    mine = cuda.local.array(8, int32)
    i = cuda.grid(1)
    for k in range(8):
        mine[k] = data[i, k]
    for k in range(8):
        data[i, k] = mine[7 - k]


rng = np.random.default_rng(1)
a = rng.integers(-4, 5, (50, 40)).astype(np.float32)
b = rng.integers(-4, 5, (40, 33)).astype(np.float32)
c = np.zeros((50, 33), np.float32)
matmul[(4, 3), (TILE, TILE)](a, b, c)
assert (c == a @ b).all()

data = rng.integers(0, 100, 256).astype(np.int32)
expected = np.cumsum(data)
scan[1, 256, 0, 4 * 256](data)
assert (data == expected).all()

rows = np.arange(64 * 8, dtype=np.int32).reshape(64, 8)
before = rows.copy()
reversed_locally[2, 32](rows)
assert (rows == before[:, ::-1]).all()
print("shared_memory: a product in tiles, a scan, rows turned round")
