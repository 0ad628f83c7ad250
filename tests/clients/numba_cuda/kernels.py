"""Kernels on arrays: plain host arrays, device arrays, 2-D grids, device functions, math."""

from __future__ import annotations

import math

import numpy as np
from numba import cuda, float32


@cuda.jit
def axpy(a, x, y):
    i = cuda.grid(1)
    if i < x.size:
        y[i] += a * x[i]


@cuda.jit(device=True)
def inside(x, y, steps):
    c = complex(x, y)
    z = 0j
    for step in range(steps):
        z = z * z + c
        if z.real * z.real + z.imag * z.imag > 4:
            return step
    return steps


@cuda.jit
def mandelbrot(picture, steps):
    row, column = cuda.grid(2)
    if row < picture.shape[0] and column < picture.shape[1]:
        y = -1.0 + 2.0 * row / picture.shape[0]
        x = -2.0 + 3.0 * column / picture.shape[1]
        picture[row, column] = inside(x, y, steps)


@cuda.jit("void(float64[:], float64[:])")
def waves(x, y):
    for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        y[i] = math.sin(x[i]) * math.exp(-x[i]) + math.sqrt(abs(x[i]))


@cuda.vectorize([float32(float32, float32)])
def hypotenuse(a, b):
    return math.sqrt(a * a + b * b)


n = 1000
x = np.arange(n, dtype=np.float64)
y = np.ones(n)
axpy[8, 128](2.0, x, y)
assert (y == 2 * x + 1).all()

d_x, d_y = cuda.to_device(x), cuda.device_array_like(x)
d_y[:] = 0.5
axpy.forall(n)(3.0, d_x, d_y)
assert (d_y.copy_to_host() == 3 * x + 0.5).all()
assert (d_y[10:20:3].copy_to_host() == 3 * x[10:20:3] + 0.5).all()

picture = np.zeros((48, 72), np.int32)
mandelbrot[(6, 9), (8, 8)](picture, 64)
rows, columns = np.mgrid[: picture.shape[0], : picture.shape[1]]
expected = np.vectorize(inside.py_func)(-2 + 3 * columns / 72, -1 + 2 * rows / 48, 64)
assert (picture == expected).mean() > 0.999  # a point at the edge may round either way

points = np.linspace(0, 10, n)
values = np.empty_like(points)
waves[4, 64](points, values)
assert np.allclose(values, np.sin(points) * np.exp(-points) + np.sqrt(points), rtol=1e-12)

legs = np.array([[3, 5, 8], [4, 12, 15]], np.float32)
assert (hypotenuse(legs[0], legs[1]) == [5, 13, 17]).all()
print(f"kernels: axpy, a picture of {picture.size} points, a ufunc")
