"""Floor 4, functions. Philox4x32-10: random bits from a key and a counter, and integers from them.

Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011. The counter's
low half is the index of the number, the high half the attempt at it. The NumPy version gives the
same bits as the CUDA C.
"""

from __future__ import annotations

from typing import Any

import numpy as np

PHILOX = """\
struct Random { unsigned long long low, high; };
__device__ Random philox(
    unsigned long long key, unsigned long long number, unsigned long long attempt)
{
    unsigned a = (unsigned)number, b = (unsigned)(number >> 32);
    unsigned c = (unsigned)attempt, d = (unsigned)(attempt >> 32);
    unsigned k = (unsigned)key, l = (unsigned)(key >> 32);
    for (int round = 0; round < 10; round++) {
        unsigned long long first = 0xD2511F53ull * a, second = 0xCD9E8D57ull * c;
        a = (unsigned)(second >> 32) ^ b ^ k;
        b = (unsigned)second;
        c = (unsigned)(first >> 32) ^ d ^ l;
        d = (unsigned)first;
        k += 0x9E3779B9u;
        l += 0xBB67AE85u;
    }
    return {a | (unsigned long long)b << 32, c | (unsigned long long)d << 32};
}"""

# Lemire, "Fast random integer generation in an interval", ACM TOMACS 29 (2019): the high half of a
# product; the draw is repeated if the low half is among the 2^64 mod `range` surplus values.
BELOW = """\
__device__ unsigned long long random_below(
    unsigned long long key, unsigned long long number, unsigned long long range)
{
    unsigned long long drawn = philox(key, number, 0).low;
    if (range == 0) return drawn;
    if (drawn * range < range) {
        unsigned long long surplus = (0 - range) % range;
        for (unsigned long long attempt = 1; drawn * range < surplus; attempt++)
            drawn = philox(key, number, attempt).low;
    }
    return __umul64hi(drawn, range);
}"""

_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_FACTORS = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_STEPS = 0x9E3779B9, 0xBB67AE85
# This many numbers at once: intermediate values stay in the cache.
PART = 1 << 13

Numbers = np.ndarray[Any, np.dtype[np.uint64]]


def philox(key: int, numbers: Numbers, attempt: int = 0) -> tuple[Numbers, Numbers]:
    """The low and the high 64 bits for each of these numbers."""
    a, b = numbers & _LOW, numbers >> _HALF
    c = np.full_like(a, attempt & 0xFFFFFFFF)
    d = np.full_like(a, attempt >> 32)
    k, l_ = key & 0xFFFFFFFF, key >> 32
    for _ in range(10):
        first, second = a * _FACTORS[0], c * _FACTORS[1]
        a, b = (second >> _HALF) ^ b ^ np.uint64(k), second & _LOW
        c, d = (first >> _HALF) ^ d ^ np.uint64(l_), first & _LOW
        k, l_ = (k + _STEPS[0]) & 0xFFFFFFFF, (l_ + _STEPS[1]) & 0xFFFFFFFF
    return a | b << _HALF, c | d << _HALF


def drawn(key: Any, start: Any, index: Numbers) -> Numbers:
    """64 random bits for each index, counted from `start`."""
    numbers: Numbers = start + index
    bits = np.empty_like(numbers)
    for at in range(0, len(numbers), PART):
        bits[at : at + PART] = philox(int(key), numbers[at : at + PART])[0]
    return bits


def below(key: Any, start: Any, limit: Any, index: Numbers) -> Numbers:
    """For each index, a number below `limit`, uniformly distributed; a limit of 0 stands for
    2^64."""
    bits, count = drawn(key, start, index), int(limit)
    if count == 0:
        return bits
    surplus = np.uint64(-count % (1 << 64) % count)
    attempt = 1
    while len(again := np.flatnonzero(bits * limit < surplus)):
        bits[again] = philox(int(key), start + index[again], attempt)[0]
        attempt += 1
    return high_product(bits, count)


def high_product(bits: Numbers, by: int) -> Numbers:
    """The high 64 bits of a product."""
    low, high = np.uint64(by & 0xFFFFFFFF), np.uint64(by >> 32)
    a, b = bits & _LOW, bits >> _HALF
    middle = b * low + (a * low >> _HALF)
    other = a * high + (middle & _LOW)
    found: Numbers = b * high + (middle >> _HALF) + (other >> _HALF)
    return found
