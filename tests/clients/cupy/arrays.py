"""CuPy's arrays: ufuncs, reductions, indexing and sorting, each against NumPy."""

from __future__ import annotations

import cupy as cp
import numpy as np

rng = np.random.default_rng(0)
plain = rng.integers(-50, 50, (37, 53)).astype(np.float32)
there = cp.asarray(plain)


def agree(found, expected, tolerance=1e-5):
    assert np.allclose(cp.asnumpy(found), expected, tolerance, tolerance), (found, expected)


agree(there * 2 + cp.sqrt(cp.abs(there)), plain * 2 + np.sqrt(np.abs(plain)))
agree(there.sum(), plain.sum())
agree(there.mean(axis=1), plain.mean(axis=1))
agree(cp.cumsum(there, axis=0), np.cumsum(plain, axis=0))
agree(there[there > 3], plain[plain > 3])
agree(there[::2, [1, 5, 7]], plain[::2, [1, 5, 7]])
agree(cp.where(there > 0, there, -there), np.abs(plain))
agree(cp.argmax(there, axis=0), plain.argmax(axis=0))
agree(cp.sort(there, axis=0), np.sort(plain, axis=0))
agree(cp.argsort(there, axis=1), np.argsort(plain, axis=1, kind="stable"))
agree(cp.partition(there.ravel(), 9)[9], np.sort(plain.ravel())[9])
keys = np.stack([plain[0], plain[1]])
agree(cp.lexsort(cp.asarray(keys)), np.lexsort(keys))
odd = np.array([3, np.nan, -1, np.inf, -0.0, 0.0, np.nan])
agree(cp.argsort(cp.asarray(odd)), np.argsort(odd, kind="stable"))
agree(cp.concatenate([there, there]).T.copy(), np.concatenate([plain, plain]).T)
agree(cp.bincount(cp.asarray([1, 2, 2, 5])), np.bincount([1, 2, 2, 5]))
agree(cp.histogram(there.ravel(), 7)[0], np.histogram(plain.ravel(), 7)[0])

print("arrays: 16 answers are NumPy's")
