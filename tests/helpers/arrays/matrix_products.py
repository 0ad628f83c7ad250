"""What a matrix product may be: NumPy's value and how far from it rounding may lead."""

from __future__ import annotations

import numpy as np

from cudasync.array.dtypes.supported import FLOAT16, FLOAT32, FLOAT64


def disagreement(found: np.ndarray, left: np.ndarray, right: np.ndarray) -> str | None:
    """What is wrong with the product of two arrays, or None.

    Integers are NumPy's, bit for bit. A float is within `k * eps * (|left| @ |right|)` of the true
    sum, k products of it being summed; float16 is summed in float32 and rounded once.
    """
    dtype = np.result_type(left, right)
    with np.errstate(all="ignore"):
        if dtype.kind != "f":
            expected = np.asarray(np.matmul(left, right))
            wrong = found != expected if found.shape == expected.shape else True
            return _told(found, expected, wrong, dtype)
        wide = np.longdouble if dtype == FLOAT64 else np.float64
        first, second = left.astype(wide), right.astype(wide)
        expected = np.asarray(np.matmul(first, second))
        if found.shape != expected.shape:
            return _told(found, expected, True, dtype)
        sizes = np.matmul(np.abs(first), np.abs(second))
        summed_in = FLOAT32 if dtype == FLOAT16 else dtype
        # Nothing, where nothing is summed. What is below the smallest normal number is not told.
        bound = left.shape[-1] * (np.finfo(summed_in).eps * sizes + np.finfo(summed_in).tiny)
        if dtype == FLOAT16:
            bound = bound + np.finfo(dtype).eps * np.abs(expected) + np.finfo(dtype).tiny
        apart = np.abs(found.astype(wide) - expected)
        # Beyond the largest number there is infinity, and where infinities meet no number.
        same = (found == expected) | (np.isnan(found) & np.isnan(expected))
        return _told(found, expected, ~(same | (apart <= bound)), dtype)


def _told(found: np.ndarray, expected: np.ndarray, wrong: object, dtype: np.dtype) -> str | None:
    if found.dtype != dtype or found.shape != expected.shape:
        return f"{found.dtype}{found.shape} instead of {dtype}{expected.shape}"
    if not np.any(wrong):
        return None
    places = np.argwhere(np.atleast_1d(wrong))
    return f"{len(places)} elements are wrong, first {places[0].tolist()}"
