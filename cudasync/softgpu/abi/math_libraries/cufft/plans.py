"""Cellar, abi. Plans of cuFFT: the transform, and the layout of its elements."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from math import prod
from typing import Any, Final

import numpy as np

from cudasync.softgpu.abi.math_libraries.stand_in import Codes, LibraryFailure

# cufftResult.
INVALID_PLAN: Final = 1
INVALID_TYPE: Final = 3
INVALID_VALUE: Final = 4
INVALID_SIZE: Final = 8
CODES: Final = Codes(10, INVALID_VALUE, 6, 16)
FORWARD, INVERSE = -1, 1

_C64, _C128 = np.dtype(np.complex64), np.dtype(np.complex128)
_F32, _F64 = np.dtype(np.float32), np.dtype(np.float64)
C2C, R2C, C2R, Z2Z, D2Z, Z2D = 0x29, 0x2A, 0x2C, 0x69, 0x6A, 0x6C
TYPES: Final[dict[int, tuple[np.dtype[Any], np.dtype[Any]]]] = {
    C2C: (_C64, _C64),
    R2C: (_F32, _C64),
    C2R: (_C64, _F32),
    Z2Z: (_C128, _C128),
    D2Z: (_F64, _C128),
    Z2D: (_C128, _F64),
}
_MOST_DIMENSIONS: Final = 3


@dataclass(frozen=True, slots=True)
class Layout:
    """The layout of a batch of boxes, in elements: CUDA's advanced data layout."""

    shape: tuple[int, ...]
    embed: tuple[int, ...]
    stride: int
    distance: int
    batch: int
    dtype: np.dtype[Any]

    @property
    def _steps(self) -> tuple[int, ...]:
        """The distances between neighbouring elements along the batch and each dimension."""
        inner = [self.stride * prod(self.embed[axis + 1 :]) for axis in range(len(self.shape))]
        return (self.distance, *inner)

    @property
    def size_bytes(self) -> int:
        """The size in bytes from the first element to the last."""
        lengths = (self.batch, *self.shape)
        if not all(lengths):
            return 0
        last = sum((length - 1) * step for length, step in zip(lengths, self._steps, strict=True))
        return (last + 1) * self.dtype.itemsize

    def view(self, address: int) -> np.ndarray[Any, Any]:
        """The elements at an address, for reading and writing."""
        shape = (self.batch, *self.shape)
        if not self.size_bytes:
            return np.empty(shape, self.dtype)
        room: Any = (ctypes.c_ubyte * self.size_bytes).from_address(address)
        strides = [step * self.dtype.itemsize for step in self._steps]
        return np.ndarray(shape, self.dtype, room, 0, strides)


@dataclass(frozen=True, slots=True)
class Transform:
    """A plan that is made: the arguments of `MakePlan`.

    Without `embed`, elements are contiguous. The rows of a real array that is transformed in place
    then have room for the complex elements.
    """

    kind: int
    lengths: tuple[int, ...]
    batch: int
    of_input: tuple[tuple[int, ...], int, int] | None = None
    of_output: tuple[tuple[int, ...], int, int] | None = None

    def check(self) -> None:
        """Refuse arguments that describe no transform."""
        if self.kind not in TYPES:
            raise LibraryFailure(INVALID_TYPE, f"there is no cufftType {self.kind:#x}")
        if not 1 <= len(self.lengths) <= _MOST_DIMENSIONS:
            raise LibraryFailure(
                INVALID_SIZE, f"a transform has 1 to 3 dimensions, not {len(self.lengths)}"
            )
        if min(self.lengths) < 1 or self.batch < 1:
            sizes = " x ".join(map(str, self.lengths))
            raise LibraryFailure(
                INVALID_SIZE, f"sizes and batch must be at least 1: {self.batch} of {sizes}"
            )

    def layouts(self, *, in_place: bool) -> tuple[Layout, Layout]:
        """The layouts of the input and of the output."""
        half = (*self.lengths[:-1], self.lengths[-1] // 2 + 1)
        padded = (*self.lengths[:-1], 2 * half[-1])
        kinds = TYPES[self.kind]
        is_real = [kind.kind == "f" for kind in kinds]
        found = []
        for real, other_real, given, dtype in zip(
            is_real, reversed(is_real), (self.of_input, self.of_output), kinds, strict=True
        ):
            shape = half if other_real and not real else self.lengths
            embed = padded if real and in_place else shape
            where = (embed, 1, prod(embed)) if given is None else given
            found.append(Layout(shape, *where, self.batch, dtype))
        return found[0], found[1]

    def compute(self, data: np.ndarray[Any, Any], direction: int) -> np.ndarray[Any, Any]:
        """The transform, without a scale in either direction, as in cuFFT."""
        axes = tuple(range(1, 1 + len(self.lengths)))
        if self.kind in (R2C, D2Z):
            return np.fft.rfftn(data, axes=axes)
        if self.kind in (C2R, Z2D):
            return np.fft.irfftn(data, self.lengths, axes=axes, norm="forward")
        if direction == FORWARD:
            return np.fft.fftn(data, axes=axes)
        return np.fft.ifftn(data, axes=axes, norm="forward")
