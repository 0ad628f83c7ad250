"""Sample functions and datasets that other processes find by name."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import numpy as np


class ByteError(ValueError):
    """An exception that pickle cannot restore, because it needs two arguments."""

    def __init__(self, what, where):
        super().__init__(f"{what} at {where}")


def square(n):
    return n * n


def pid(n):
    return os.getpid()


def tree(n):
    """Large and small leaves, a column-major leaf and a leaf with gaps."""
    return {
        "large": np.full((64, 64), n),
        "columns": np.full((64, 32), n, order="F"),
        "gaps": np.full((64, 64), n)[::2, ::2],
        "small": np.float32(n),
        "label": (n, str(n)),
    }


def megabyte(n):
    return np.full(1 << 20, n % 251, np.uint8)


def broken(n):
    if n == 37:
        raise KeyError("no such sample")
    return n


def unpicklable_error(n):
    if n == 5:
        raise ByteError("bad byte", n)
    return n


def unpicklable_result(n):
    return (lambda: n) if n == 5 else n


def killed(n):
    if n == 5:
        os.kill(os.getpid(), signal.SIGKILL)
    return n


def ended(n):
    if n == 5:
        raise SystemExit(3)
    return n


def endless(path, n):
    """Sample 1 never ends; the file shows that it was begun."""
    while n == 1:
        Path(path).touch()
        signal.pause()
    return n


class Corrupt:
    """A dataset with one unreadable sample."""

    def __init__(self, size_bytes=0):
        self.ballast = bytes(size_bytes)

    def __len__(self):
        return 50

    def __getitem__(self, index):
        return broken(index)


class Where(Corrupt):
    """A dataset with samples that name the process that fetched them."""

    def __getitem__(self, index):
        return os.getpid()


def fails_at(where, n):
    """The sample as an array that is large enough for shared memory; fails at one sample."""
    if n == where:
        raise ValueError(n)
    return np.full(1024, n, np.float32)


def is_kept(n):
    return n % 3 != 1


def shifted(n):
    return int(n) + 7


def total(batch):
    return int(np.sum(batch))


def length(n):
    return n % 5


def reused(numbers):
    """Each number in the same array."""
    memory = np.zeros(1, int)
    for memory[0] in numbers:
        yield memory
