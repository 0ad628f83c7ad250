"""Sample values of a dtype for tests of functions, and the distance of two results."""

from __future__ import annotations

import numpy as np

_FLOATS = (
    *(0.0, -0.0, 1, -1, 0.5, -0.5, 1.5, -1.5, 2.5, -2.5, 2, -2, 3, np.inf, -np.inf, np.nan),
    *(1e-40, -1e-310, 1e30, -1e300, 88.7, 710, -745, 1e5, 1e10, np.pi, np.pi / 2),
)
_SMALL_INTEGERS = (0, 1, 2, 3, 7, 31, 32, 63, 64)


def numbers_of(dtype: np.dtype, seed: int = 0, count: int = 600) -> np.ndarray:
    """The special values of a dtype, then values from its whole range; always the same."""
    rng = np.random.default_rng(seed)
    with np.errstate(over="ignore", under="ignore"):
        if dtype.kind == "b":
            return rng.integers(0, 2, count).astype(dtype)
        if dtype.kind == "f":
            wide = np.exp(rng.uniform(-60, 60, count)) * rng.choice([-1, 1], count)
            near = [rng.normal(size=count), rng.uniform(-1, 1, count), 50 * rng.normal(size=count)]
            return np.concatenate([_FLOATS, *near, wide]).astype(dtype)
    limits = np.iinfo(dtype)
    edges = [limits.min, limits.min + 1, limits.max, limits.max - 1]
    small = [each for n in _SMALL_INTEGERS for each in (n, -n) if limits.min <= each <= limits.max]
    drawn = rng.integers(limits.min, limits.max, count, dtype=dtype, endpoint=True)
    return np.concatenate([np.array([*edges, *small], dtype), drawn])


def pairs_of(dtype: np.dtype) -> tuple[np.ndarray, np.ndarray]:
    """All pairs of special values, then random values."""
    drawn = numbers_of(dtype)
    special = drawn[: len(_FLOATS) if dtype.kind == "f" else 2 * len(_SMALL_INTEGERS)]
    first, second = np.meshgrid(special, special)
    other = np.random.default_rng(1).permutation(drawn)
    return np.concatenate([first.ravel(), drawn]), np.concatenate([second.ravel(), other])


def ulps_apart(found: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """How many steps of the dtype lie between two numbers. NaN equals NaN; zeros are one step
    apart."""
    bits = np.dtype(f"i{found.itemsize}")
    lowest = np.iinfo(bits).min

    def ordered(values: np.ndarray) -> np.ndarray:
        whole = values.view(bits).astype(object)
        return np.where(whole < 0, lowest - whole - 1, whole)

    apart = np.abs(ordered(found) - ordered(expected))
    return np.where(np.isnan(found) & np.isnan(expected), 0, apart)


def same_bits(found: np.ndarray, expected: np.ndarray) -> bool:
    """True if dtype, shape and bits agree; any NaN is as good as any other."""
    if found.dtype != expected.dtype or found.shape != expected.shape:
        return False
    if found.dtype.kind != "f":
        return bool((found == expected).all())
    same = found.view(f"i{found.itemsize}") == expected.view(f"i{found.itemsize}")
    return bool((same | (np.isnan(found) & np.isnan(expected))).all())
