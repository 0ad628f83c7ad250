"""The work of bench_softgpu in NumPy, and in numba on all processors.

Each function works in the way that is natural for a processor, not for a GPU: sequential sums, and
a histogram for each thread. The functions have the names of the kernels. `numba_functions` makes
numba's functions, because numba need not be installed.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

RATE, VOLATILITY = np.float32(0.02), np.float32(0.30)
SOFTENING = np.float32(0.01)
F = np.float32


class NumPy:
    """NumPy's functions. None loops over elements; work that needs such a loop is left out."""

    @staticmethod
    def saxpy(a, x, y):
        y += a * x

    @staticmethod
    def grid_stride(x, y):
        np.multiply(x, F(2), out=y)
        y += F(1)

    @staticmethod
    def matmul(a, b, c):
        np.matmul(a, b, out=c)

    @staticmethod
    def block_sum(x, sums):
        sums[:] = 0
        sums[0] = x.sum()

    @staticmethod
    def stencil(x, y):
        inner = y[1:-1, 1:-1]
        np.add(x[1:-1, :-2], x[1:-1, 2:], out=inner)
        inner += x[:-2, 1:-1]
        inner += x[2:, 1:-1]
        inner *= F(0.125)
        inner += F(0.5) * x[1:-1, 1:-1]

    @staticmethod
    def transpose(x, y):
        y[:] = x.T

    @staticmethod
    def histogram(x, counts):
        counts[:] = np.bincount(x, minlength=256)

    @staticmethod
    def black_scholes(price, strike, years, call, put):
        root = np.sqrt(years)
        drift = RATE + F(0.5) * VOLATILITY * VOLATILITY
        d = (np.log(price / strike) + drift * years) / (VOLATILITY * root)
        one, two = _below(d), _below(d - VOLATILITY * root)
        later = strike * np.exp(-RATE * years)
        call[:] = price * one - later * two
        put[:] = later * (1 - two) - price * (1 - one)

    @staticmethod
    def scan(x, y):
        np.cumsum(x, axis=1, out=y)


def _below(d):
    k = 1 / (1 + F(0.2316419) * np.abs(d))
    tail = F(1.330274429)
    for factor in (-1.821255978, 1.781477937, -0.356563782, 0.31938153):
        tail = F(factor) + k * tail
    tail = F(0.39894228) * np.exp(F(-0.5) * d * d) * k * tail
    return np.where(d > 0, 1 - tail, tail)


def numba_functions() -> dict[str, Any]:
    """numba's functions by kernel; ImportError if numba is not installed."""
    import numba
    from numba import njit, prange

    parallel = njit(parallel=True, fastmath=True, nogil=True)

    @parallel
    def saxpy(a, x, y):
        for i in prange(x.size):
            y[i] = a * x[i] + y[i]

    @parallel
    def grid_stride(x, y):
        for i in prange(x.size):
            y[i] = x[i] * F(2) + F(1)

    @parallel
    def matmul(a, b, c):
        n = a.shape[0]
        for i in prange(n):
            c[i, :] = F(0)
            for k in range(n):
                factor = a[i, k]
                for j in range(n):
                    c[i, j] += factor * b[k, j]

    @parallel
    def matmul_naive(a, b, c):
        n = a.shape[0]
        for i in prange(n):
            for j in range(n):
                total = F(0)
                for k in range(n):
                    total += a[i, k] * b[k, j]
                c[i, j] = total

    @parallel
    def summed(x):
        total = F(0)
        for i in prange(x.size):
            total += x[i]
        return total

    def block_sum(x, sums):
        sums[:] = 0
        sums[0] = summed(x)

    @parallel
    def stencil(x, y):
        n = x.shape[0]
        for j in prange(1, n - 1):
            for i in range(1, n - 1):
                around = x[j, i - 1] + x[j, i + 1] + x[j - 1, i] + x[j + 1, i]
                y[j, i] = F(0.5) * x[j, i] + F(0.125) * around

    @parallel
    def transpose(x, y):
        n = x.shape[0]
        for tile in prange(n // 32):
            for other in range(n // 32):
                for j in range(32):
                    for i in range(32):
                        y[32 * tile + j, 32 * other + i] = x[32 * other + i, 32 * tile + j]

    @parallel
    def counted(x, parts):
        share = x.size // parts.shape[0]
        for part in prange(parts.shape[0]):
            mine = parts[part]
            mine[:] = 0
            for i in range(part * share, (part + 1) * share):
                mine[x[i]] += 1

    parts = np.empty((numba.get_num_threads(), 256), np.uint32)

    def histogram(x, counts):
        counted(x, parts)
        np.sum(parts, axis=0, out=counts, dtype=np.uint32)
        rest = x.size % len(parts)
        if rest:
            counts += np.bincount(x[-rest:], minlength=256).astype(np.uint32)

    @parallel
    def mandelbrot(steps, limit):
        n = steps.shape[0]
        scale = F(3) / F(n)
        for j in prange(n):
            for i in range(n):
                cr, ci = F(-2) + scale * F(i), F(-1.5) + scale * F(j)
                a, b, k = F(0), F(0), 0
                while k < limit and a * a + b * b < F(4):
                    a, b = a * a - b * b + cr, F(2) * a * b + ci
                    k += 1
                steps[j, i] = k

    @njit(fastmath=True, inline="always")
    def below(d):
        k = F(1) / (F(1) + F(0.2316419) * abs(d))
        tail = F(-1.821255978) + k * F(1.330274429)
        tail = F(0.31938153) + k * (F(-0.356563782) + k * (F(1.781477937) + k * tail))
        tail = F(0.39894228) * math.exp(F(-0.5) * d * d) * k * tail
        return F(1) - tail if d > F(0) else tail

    @parallel
    def black_scholes(price, strike, years, call, put):
        drift = RATE + F(0.5) * VOLATILITY * VOLATILITY
        for i in prange(price.size):
            s, x, t = price[i], strike[i], years[i]
            root = math.sqrt(t)
            d = (math.log(s / x) + drift * t) / (VOLATILITY * root)
            one, two = below(d), below(d - VOLATILITY * root)
            later = x * math.exp(-RATE * t)
            call[i] = s * one - later * two
            put[i] = later * (F(1) - two) - s * (F(1) - one)

    @parallel
    def nbody(bodies, pulls):
        n = bodies.shape[0]
        xs, ys, zs = bodies[:, 0].copy(), bodies[:, 1].copy(), bodies[:, 2].copy()
        masses = bodies[:, 3].copy()
        for i in prange(n):
            x, y, z = F(0), F(0), F(0)
            for k in range(n):
                dx, dy, dz = xs[k] - xs[i], ys[k] - ys[i], zs[k] - zs[i]
                inverse = F(1) / math.sqrt(dx * dx + dy * dy + dz * dz + SOFTENING)
                pull = masses[k] * inverse * inverse * inverse
                x += dx * pull
                y += dy * pull
                z += dz * pull
            pulls[i, 0], pulls[i, 1], pulls[i, 2], pulls[i, 3] = x, y, z, F(0)

    @parallel
    def scan(x, y):
        for row in prange(x.shape[0]):
            total = np.int32(0)
            for i in range(x.shape[1]):
                total += x[row, i]
                y[row, i] = total

    found = dict(locals())
    return {name: function for name, function in found.items() if callable(function)}
