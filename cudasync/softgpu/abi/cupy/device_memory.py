"""Cellar, abi. Device memory as NumPy arrays, and the stream that CuPy's calls go to."""

from __future__ import annotations

import ctypes
import sys
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cudasync.softgpu.core.machine import Machine
    from cudasync.softgpu.core.streams.streams import Stream


def array_at(address: int, dtype: np.dtype[Any], shape: Sequence[int]) -> np.ndarray[Any, Any]:
    """The elements at an address, in C order, without a copy."""
    count = prod(shape)
    if not count:
        return np.empty(shape, dtype)
    room: Any = (ctypes.c_ubyte * (count * dtype.itemsize)).from_address(address)
    found: np.ndarray[Any, Any] = np.frombuffer(room, dtype).reshape(shape)
    return found


def strided_at(
    start: int,
    size_bytes: int,
    address: int,
    dtype: np.dtype[Any],
    shape: tuple[int, ...],
    strides: tuple[int, ...],
) -> np.ndarray[Any, Any]:
    """The array whose first element is at `address`, within the bytes that begin at `start`."""
    if not size_bytes:
        return np.empty(shape, dtype)
    room: Any = (ctypes.c_ubyte * size_bytes).from_address(start)
    return np.ndarray(shape, dtype, room, address - start, strides)


def current_stream(machine: Machine) -> Stream:
    """CuPy's current stream for the calling thread and its device."""
    cuda: Any = sys.modules["cupy.cuda.stream"]
    return machine.streams.get(cuda.get_current_stream().ptr)
