"""Cellar, abi. Generators of cuRAND: words of NumPy's Philox, and numbers made of them.

A generator gives the same numbers for the same seed and offset, but not the numbers of NVIDIA's.
Uniform numbers are in (0, 1], as cuRAND documents. Pairs of normal numbers are made by the
Box-Muller method.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from cudasync.locks import Lock
from cudasync.softgpu.abi.math_libraries.stand_in import LibraryFailure

TYPE_ERROR: Final = 103
OUT_OF_RANGE: Final = 104
LENGTH_NOT_MULTIPLE: Final = 105
# curandRngType: the pseudo-random ones. Quasi-random sequences are fixed by definition: none here.
_PSEUDO: Final = (100, 101, 121, 141, 142, 161)
_WORDS_A_BLOCK: Final = 4


@dataclass(slots=True)
class Generator:
    """The position of a generator in its sequence of 64-bit words."""

    kind: int
    stream: int = 0
    seed: int = 0
    position: int = 0
    lock: Lock = field(default_factory=Lock)

    def take(self, count: int) -> tuple[int, int]:
        """The seed, and the place of the next `count` words, which are used up."""
        with self.lock:
            place = self.position
            self.position += count
            return self.seed, place


def check_kind(kind: int) -> None:
    """CURAND_STATUS_TYPE_ERROR for a generator type that is not implemented."""
    if kind not in _PSEUDO:
        raise LibraryFailure(
            TYPE_ERROR, f"generators of type {kind} are not modelled: use a pseudo-random type"
        )


def words(seed: int, place: int, count: int) -> np.ndarray[Any, np.dtype[np.uint64]]:
    """64-bit words of the seed's sequence, starting at a place."""
    bits = np.random.Philox(key=seed)
    bits.advance(place // _WORDS_A_BLOCK)
    before = place % _WORDS_A_BLOCK
    found: np.ndarray[Any, np.dtype[np.uint64]] = bits.random_raw(before + count)[before:]
    return found


def uniform(
    seed: int, place: int, count: int, dtype: np.dtype[Any]
) -> np.ndarray[Any, np.dtype[Any]]:
    """Numbers in (0, 1]: the upper bits of a word, plus one step."""
    bits = 24 if dtype == np.float32 else 53
    upper = (words(seed, place, count) >> np.uint64(64 - bits)) + np.uint64(1)
    return (upper.astype(np.float64) * 2.0**-bits).astype(dtype)


def normal(
    seed: int, place: int, count: int, mean: float, deviation: float
) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Normal numbers; `count` is even."""
    flat = uniform(seed, place, count, np.dtype(np.float64))
    radius = np.sqrt(-2 * np.log(flat[0::2]))
    angle = 2 * np.pi * flat[1::2]
    found = np.empty(count)
    found[0::2], found[1::2] = radius * np.cos(angle), radius * np.sin(angle)
    return found * deviation + mean


def poisson(seed: int, place: int, count: int, rate: float) -> np.ndarray[Any, Any]:
    """Poisson numbers; each place has a sequence of its own."""
    drawn = np.random.Generator(np.random.Philox(key=[seed, place + 1]))
    return drawn.poisson(rate, count).astype(np.uint32)
