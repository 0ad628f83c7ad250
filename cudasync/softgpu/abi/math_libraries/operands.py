"""Cellar, abi. Vectors and matrices of BLAS in device memory, as NumPy arrays.

A matrix is stored by columns that are `leading` elements apart. A vector's elements are `step`
apart, starting from its end if `step` is negative.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True, slots=True)
class Matrix:
    """A matrix at an address: `span` is all of the memory from its first element to its last."""

    address: int
    rows: int
    columns: int
    leading: int
    dtype: np.dtype[Any]

    @property
    def span(self) -> tuple[int, int]:
        """The start address, and the size in bytes."""
        if not self.rows or not self.columns:
            return self.address, 0
        count = (self.columns - 1) * self.leading + self.rows
        return self.address, count * self.dtype.itemsize

    def view(self) -> np.ndarray[Any, Any]:
        """The elements, for reading and writing."""
        strides = (self.dtype.itemsize, self.leading * self.dtype.itemsize)
        return _strided(*self.span, (self.rows, self.columns), strides, self.dtype)


@dataclass(frozen=True, slots=True)
class Vector:
    """A vector at an address."""

    address: int
    count: int
    step: int
    dtype: np.dtype[Any]

    @property
    def span(self) -> tuple[int, int]:
        """The start address, and the size in bytes."""
        if self.count <= 0:
            return self.address, 0
        return self.address, ((self.count - 1) * abs(self.step) + 1) * self.dtype.itemsize

    def view(self) -> np.ndarray[Any, Any]:
        """The elements in their order, for reading and writing."""
        stride = abs(self.step) * self.dtype.itemsize
        found = _strided(*self.span, (max(0, self.count),), (stride,), self.dtype)
        return found[::-1] if self.step < 0 else found


def _strided(
    address: int,
    size_bytes: int,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    dtype: np.dtype[Any],
) -> np.ndarray[Any, Any]:
    if not size_bytes:
        return np.empty(shape, dtype)
    room: Any = (ctypes.c_ubyte * size_bytes).from_address(address)
    return np.ndarray(shape, dtype, room, 0, strides)
