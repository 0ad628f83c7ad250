"""Permitted results of a matrix product: NumPy's value, and the bound of the rounding error."""

from __future__ import annotations

import numpy as np

from cudasync.array.dtypes.supported import FLOAT16, FLOAT32, FLOAT64


def disagreement(found: np.ndarray, left: np.ndarray, right: np.ndarray) -> str | None:
    """The error in the product of two arrays, or None.

    Integers must equal NumPy's bit for bit. A float must lie within `k * eps * (|left| @ |right|)`
    of the true sum of k products. float16 is summed in float32 and rounded once.
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
        # The bound is 0 where nothing is summed. Differences below the smallest normal number are
        # ignored.
        bound = left.shape[-1] * (np.finfo(summed_in).eps * sizes + np.finfo(summed_in).tiny)
        if dtype == FLOAT16:
            bound = bound + np.finfo(dtype).eps * np.abs(expected) + np.finfo(dtype).tiny
        apart = np.abs(found.astype(wide) - expected)
        # Overflow gives infinity, and opposite infinities give NaN.
        same = (found == expected) | (np.isnan(found) & np.isnan(expected))
        return _told(found, expected, ~(same | (apart <= bound)), dtype)


def _told(found: np.ndarray, expected: np.ndarray, wrong: object, dtype: np.dtype) -> str | None:
    if found.dtype != dtype or found.shape != expected.shape:
        return f"{found.dtype}{found.shape} instead of {dtype}{expected.shape}"
    if not np.any(wrong):
        return None
    places = np.argwhere(np.atleast_1d(wrong))
    return f"{len(places)} elements are wrong, first {places[0].tolist()}"
