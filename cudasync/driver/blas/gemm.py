"""Floor 1, BLAS. The arguments of a matrix product that do not depend on addresses.

BLAS counts by columns: `C[i, j]` of a matrix is `C[i + j * ldc]`. It computes, for each of `count`
matrices, `C = op_a(A) op_b(B)`, where `op_a(A)` has m rows and k columns, `op_b(B)` k and n. The
next matrix is `stride` elements on.
"""

from __future__ import annotations

from dataclasses import dataclass

# cublasOperation_t: the matrix itself, or its transpose.
PLAIN, TRANSPOSED = 0, 1

# The largest value of an `int` of the interface.
MOST = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class Factor:
    """A or B: its operation, its leading dimension, and the stride between its matrices."""

    operation: int
    leading: int
    stride: int


@dataclass(frozen=True, slots=True)
class Gemm:
    """A product of `a` by `b`; all counts and strides are in elements of `letter`, "f" or "d"."""

    letter: str
    m: int
    n: int
    k: int
    a: Factor
    b: Factor
    leading: int
    stride: int
    count: int
