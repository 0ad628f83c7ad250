"""Floor 4, products. Chooses cuBLAS, or a kernel and its launch, for a product."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from cudasync.array.expressions.layout import MOST_SHORT, collapsed
from cudasync.array.expressions.layout import Layout as Axes
from cudasync.array.products.blas_form import blas_form
from cudasync.array.products.thin import BLOCK, Thin
from cudasync.array.products.tiled import COLUMNS, ROWS, SIDE, Tiling
from cudasync.driver.blas import blas_of
from cudasync.driver.memory.strides import contiguous_strides

if TYPE_CHECKING:
    from cudasync.array.products.problem import Problem
    from cudasync.driver import Device
    from cudasync.driver.blas import Blas, Gemm

# Squares pay while at most this many products are computed for each useful one. On the software GPU
# a block fetches an element once for 32 products.
_MOST_PADDING = 16
# Up to this depth a thread sums alone, rather than with others.
_SHORT = 32
_WARP = 32

Kind: TypeAlias = Tiling | Thin


@dataclass(frozen=True, slots=True)
class Choice:
    """A kernel's class, its grid and block, the numbers behind its arrays, and the offset in
    elements of each array's first element from its pointer."""

    kind: Kind
    grid: tuple[int, ...]
    block: tuple[int, ...]
    numbers: tuple[int, ...]
    first: tuple[int, ...]


def library_call(problem: Problem, device: Device) -> tuple[Blas, Gemm] | None:
    """cuBLAS and the call for the product, if the device has it and one call computes it."""
    gemm = blas_form(problem)
    if gemm is None:
        return None
    blas = blas_of(device).blas
    return None if blas is None else (blas, gemm)


def chosen(problem: Problem) -> Choice:
    """The kernel for a product with at least one element and a depth of at least one."""
    sizes = problem.rows, problem.columns, problem.depth
    padded = math.prod(-(-size // SIDE) * SIDE for size in sizes)
    is_tiled = padded <= _MOST_PADDING * math.prod(sizes)
    return _tiled(problem) if is_tiled else _thin(problem)


def _axes(shape: tuple[int, ...], strides: list[tuple[int, ...]]) -> Axes:
    """The fewest axes; the contiguous result traverses them in C order."""
    return collapsed(shape, [*strides, contiguous_strides(shape, 1)])


def _is_wide(problem: Problem) -> bool:
    lengths = [
        (*problem.stack, problem.rows, problem.depth),
        (*problem.stack, problem.depth, problem.columns),
    ]
    reaches = [
        sum(abs(step) * (length - 1) for step, length in zip(steps, along, strict=True))
        for steps, along in zip(problem.strides, lengths, strict=True)
    ]
    return max(*reaches, math.prod(problem.result_shape), problem.depth) >= MOST_SHORT


def _tiled(problem: Problem) -> Choice:
    axes = _axes(problem.stack, [each[:-2] for each in problem.strides])
    along, is_dense = [], []
    for steps in problem.strides:
        down, across = map(abs, steps[-2:])
        along.append(COLUMNS if down < across else ROWS)
        is_dense.append(steps[-2 if down < across else -1] == 1)
    kind = Tiling(
        problem.dtypes,
        problem.dtype,
        (along[0], along[1]),
        (is_dense[0], is_dense[1]),
        len(axes.lengths),
        _is_wide(problem),
    )
    squares = -(-problem.rows // SIDE) * -(-problem.columns // SIDE)
    numbers = [problem.rows, problem.columns, problem.depth, *axes.lengths]
    for at in (0, 1):
        numbers += [*axes.strides[at], *problem.strides[at][-2:]]
    grid = (squares * math.prod(problem.stack),)
    return Choice(kind, grid, (SIDE, SIDE), tuple(numbers), axes.first)


def _thin(problem: Problem) -> Choice:
    shape = (*problem.stack, problem.rows, problem.columns)
    left, right = problem.strides
    axes = _axes(shape, [(*left[:-1], 0), (*right[:-2], 0, right[-1])])
    if not axes.lengths:
        axes = Axes((1,), ((0,),) * 3, axes.first)
    deep = left[-1], right[-2]
    parts, is_along = _shared_out(axes, deep, problem.depth)
    kind = Thin(
        problem.dtypes, problem.dtype, parts, is_along, len(axes.lengths), _is_wide(problem)
    )
    numbers = [problem.depth, *axes.lengths]
    for at in (0, 1):
        numbers += [*axes.strides[at], deep[at]]
    grid = (-(-math.prod(shape) // kind.outputs),)
    return Choice(kind, grid, kind.block, tuple(numbers), axes.first)


def _shared_out(axes: Axes, deep: tuple[int, int], depth: int) -> tuple[int, bool]:
    """The number of threads that sum one element, and whether a warp lies along the depth."""
    if depth <= _SHORT:
        return 1, False
    outputs = math.prod(axes.lengths)
    if outputs == 1:
        return BLOCK, True
    # A warp lies along the result's last axis or along the depth: where its elements are closer.
    over = sum(abs(steps[-1]) for steps in axes.strides[:2])
    if axes.lengths[-1] >= _WARP and over < abs(deep[0]) + abs(deep[1]):
        return BLOCK // _WARP, False
    return _WARP, True
