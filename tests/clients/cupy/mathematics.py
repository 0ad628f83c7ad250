"""Products, transforms and random numbers: cuBLAS, cuFFT and cuRAND beneath CuPy."""

from __future__ import annotations

import cupy as cp
import numpy as np

rng = np.random.default_rng(1)


def agree(found, expected, tolerance=1e-4):
    assert found.shape == expected.shape
    assert np.allclose(cp.asnumpy(found), expected, tolerance, tolerance)


for dtype in (np.float16, np.float32, np.float64, np.complex64):
    a = rng.uniform(-1, 1, (20, 30)).astype(dtype)
    b = rng.uniform(-1, 1, (30, 10)).astype(dtype)
    tolerance = 0.02 if dtype == np.float16 else 1e-4
    wide = np.float32 if dtype == np.float16 else dtype
    agree(cp.asarray(a) @ cp.asarray(b), a.astype(wide) @ b.astype(wide), tolerance)
    agree(cp.dot(cp.asarray(b).T, cp.asarray(a).T), (a.astype(wide) @ b.astype(wide)).T, tolerance)
    many = rng.uniform(-1, 1, (4, 5, 6)).astype(dtype)
    product = many.astype(wide) @ many.astype(wide).transpose(0, 2, 1)
    agree(cp.matmul(cp.asarray(many), cp.asarray(many).transpose(0, 2, 1)), product, tolerance)
x, y = rng.uniform(-1, 1, 50), rng.uniform(-1, 1, 50)
agree(cp.dot(cp.asarray(x), cp.asarray(y)), np.asarray(np.dot(x, y)))
agree(cp.linalg.norm(cp.asarray(x)), np.asarray(np.linalg.norm(x)))
agree(cp.einsum("ij,jk->ik", cp.asarray(a), cp.asarray(b)), a @ b)
pairs = [[0, 1], [0, 1]]
agree(cp.tensordot(cp.asarray(many), cp.asarray(many), pairs), np.tensordot(many, many, pairs))

signal = rng.uniform(-1, 1, (6, 12, 10))
agree(cp.fft.fft(cp.asarray(signal), axis=1), np.fft.fft(signal, axis=1))
agree(cp.fft.rfft(cp.asarray(signal)), np.fft.rfft(signal))
agree(cp.fft.irfft(cp.fft.rfft(cp.asarray(signal))), signal)
agree(cp.fft.fft2(cp.asarray(signal)), np.fft.fft2(signal))
agree(cp.fft.ifftn(cp.asarray(signal)), np.fft.ifftn(signal))

cp.random.seed(5)
first = cp.random.uniform(0, 1, 1000)
cp.random.seed(5)
assert (first == cp.random.uniform(0, 1, 1000)).all()
assert 0.4 < float(first.mean()) < 0.6
assert -0.2 < float(cp.random.standard_normal(1000).mean()) < 0.2
assert set(cp.asnumpy(cp.random.randint(2, 5, 200)).tolist()) == {2, 3, 4}
assert sorted(cp.asnumpy(cp.random.permutation(100)).tolist()) == list(range(100))

# A real GPU does not refuse it.
refused = ""
try:
    cp.linalg.svd(cp.asarray(signal[0]))
except ImportError as error:
    refused = str(error)
assert not refused or refused.startswith("cuSOLVER is not supported by the software GPU")

print("mathematics: products, transforms and random numbers")
