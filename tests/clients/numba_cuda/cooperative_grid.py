"""A grid whose blocks wait for each other: every matrix row is computed from the row above."""

from __future__ import annotations

import numpy as np
from numba import cuda, int32, void


@cuda.jit(void(int32[:, ::1]))
def rows_from_above(matrix):
    column = cuda.grid(1)
    grid = cuda.cg.this_grid()
    last = matrix.shape[1] - 1 - column
    for row in range(1, matrix.shape[0]):
        # Another block has written the opposite column.
        matrix[row, column] = matrix[row - 1, last] + 1
        grid.sync()


block = 32
most = rows_from_above.overloads[(int32[:, ::1],)].max_cooperative_grid_blocks(block)
blocks = min(8, most)
matrix = np.zeros((64, block * blocks), np.int32)
rows_from_above[blocks, block](matrix)
assert (matrix == np.arange(64)[:, None]).all()
print(f"cooperative_grid: 64 rows in {blocks} blocks")
