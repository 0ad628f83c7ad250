"""A program's own kernels in CuPy: raw, elementwise, reductions, fused, and by jit."""

from __future__ import annotations

import cupy as cp
import numpy as np
from cupyx import jit

count = 1000
x = cp.arange(count, dtype=cp.float32)
plain = np.arange(count, dtype=np.float32)

source = r"""
extern "C" __global__ void scale(const float* x, float* y, float factor, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = factor * x[i];
}
template <typename T> __global__ void shift(T* x, T by, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] += by;
}
__constant__ float table[2];
extern "C" __global__ void looked_up(float* y) { y[threadIdx.x] = table[threadIdx.x]; }
"""
y = cp.empty_like(x)
cp.RawKernel(source, "scale")((8,), (128,), (x, y, np.float32(3), np.int32(count)))
assert (cp.asnumpy(y) == plain * 3).all()

module = cp.RawModule(code=source, options=("--std=c++14",), name_expressions=["shift<double>"])
doubles = cp.arange(5, dtype=cp.float64)
module.get_function("shift<double>")((1,), (32,), (doubles, np.float64(0.5), np.int32(5)))
assert (cp.asnumpy(doubles) == np.arange(5) + 0.5).all()
table = cp.ndarray((2,), cp.float32, module.get_global("table"))
table[:] = cp.asarray([7, 8], cp.float32)
module.get_function("looked_up")((1,), (2,), (y,))
assert cp.asnumpy(y)[:2].tolist() == [7, 8]

squares = cp.ElementwiseKernel("T a, T b", "T c", "c = (a - b) * (a - b)", "squares")
assert (cp.asnumpy(squares(x, cp.float32(2))) == (plain - 2) ** 2).all()

length = cp.ReductionKernel("T a", "T b", "a * a", "a + b", "b = sqrt(a)", "0", "length")
assert np.isclose(float(length(x)), np.linalg.norm(plain), 1e-5)


@cp.fuse()
def polynomial(a, b):
    return a * b + cp.sin(a) - b


assert np.allclose(cp.asnumpy(polynomial(x, x)), plain * plain + np.sin(plain) - plain, 1e-4, 1e-3)


@jit.rawkernel()
def copy_backwards(source, target, size):
    i = jit.blockIdx.x * jit.blockDim.x + jit.threadIdx.x
    if i < size:
        target[size - 1 - i] = source[i]


copy_backwards((8,), (128,), (x, y, np.uint32(count)))
assert (cp.asnumpy(y) == plain[::-1]).all()

print("kernels: 6 kinds ran")
