"""Image filters on device arrays: each launches one or two of the shipped kernels.

A plane is a (height, width) float32 array, 0 black and 1 white. Every filter returns a new array at
once, before the device has computed it.
"""

from __future__ import annotations

from functools import cache

import numpy as np

import cudasync as cs
from cudasync.array.kernels.bundled_ptx import kernel_file

_BLOCK = 256
# A first launch folds a whole plane by blocks; a second launch of one block folds their results.
_REDUCTION_BLOCKS = 64


@cache
def _kernel(file: str, name: str) -> cs.Kernel:
    return cs.Module.from_file(kernel_file(file)).kernel(name)


def luma(colour: cs.Array) -> cs.Array:
    """The brightness of (height, width, 4) RGBA bytes as a plane."""
    plane = cs.empty(colour.shape[:2], np.float32)
    _pointwise("luma", "luma", plane.size, colour, plane)
    return plane


def recolour(colour: cs.Array, before: cs.Array, after: cs.Array) -> cs.Array:
    """`colour` with each pixel brighter or darker, as its luma changed from `before` to `after`."""
    result = cs.empty_like(colour)
    _pointwise("luma", "recolour", before.size, colour, before, after, result)
    return result


def gaussian_blur(plane: cs.Array, weights: np.ndarray) -> cs.Array:
    """Blur along rows, then along columns, by 2 * radius + 1 weights."""
    height, width = plane.shape
    radius = np.uint32(len(weights) // 2)
    on_device = cs.array(weights)
    rows, blurred = cs.empty_like(plane), cs.empty_like(plane)
    size = (np.uint32(width), np.uint32(height), radius)
    grid, block = _by_rows(height, width)
    _kernel("convolution", "gaussian_rows")[grid, block](plane, on_device, rows, *size)
    _kernel("convolution", "gaussian_columns")[grid, block](rows, on_device, blurred, *size)
    return blurred


def sobel(plane: cs.Array) -> cs.Array:
    """Edge strength, 0 for a constant plane."""
    height, width = plane.shape
    edges = cs.empty_like(plane)
    grid, block = _by_rows(height, width)
    _kernel("sobel", "sobel")[grid, block](plane, edges, np.uint32(width), np.uint32(height))
    return edges


def least(plane: cs.Array) -> cs.Array:
    """The least value of a plane, as an array of one."""
    return _reduce("reduce_min_f32", plane)


def greatest(plane: cs.Array) -> cs.Array:
    """The greatest value of a plane, as an array of one."""
    return _reduce("reduce_max_f32", plane)


def extend(plane: cs.Array, low: cs.Array, high: cs.Array, gain: float) -> cs.Array:
    """Stretch `low`..`high` to 0..gain, and clamp to 0..1."""
    result = cs.empty_like(plane)
    _pointwise("extend", "extend", plane.size, plane, low, high, np.float32(gain), result)
    return result


def unsharp(plane: cs.Array, blurred: cs.Array, amount: float) -> cs.Array:
    """Add `amount` times the detail that `blurred` lacks."""
    result = cs.empty_like(plane)
    _pointwise("unsharp", "unsharp", plane.size, plane, blurred, np.float32(amount), result)
    return result


def combine(x: cs.Array, y: cs.Array, mask: cs.Array) -> cs.Array:
    """`x` where the mask is 1, `y` where it is 0."""
    result = cs.empty_like(x)
    _pointwise("combine", "combine", x.size, x, y, mask, result)
    return result


def _pointwise(file: str, name: str, count: int, *arguments: object) -> None:
    """One thread a pixel; the kernel's last parameter is the number of pixels."""
    blocks = -(-count // _BLOCK)
    _kernel(file, name)[(blocks,), (_BLOCK,)](*arguments, np.uint32(count))


def _by_rows(height: int, width: int) -> tuple[tuple[int, int], tuple[int]]:
    """Grid and block, with a row of blocks for each image row."""
    return (height, -(-width // _BLOCK)), (_BLOCK,)


def _reduce(name: str, plane: cs.Array) -> cs.Array:
    kernel = _kernel("reduce", name)
    blocks = min(_REDUCTION_BLOCKS, -(-plane.size // _BLOCK))
    partials, result = cs.empty((blocks,), np.float32), cs.empty((1,), np.float32)
    kernel[(blocks,), (_BLOCK,)](plane, partials, np.uint32(plane.size))
    kernel[(1,), (_BLOCK,)](partials, result, np.uint32(blocks))
    return result
