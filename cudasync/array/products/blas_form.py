"""Floor 4, products. The BLAS call for a product, if one call can compute it.

BLAS is column-major and our results are row-major: a row of ours is a column of BLAS's. So the call
computes the transposed result, as the transposed right operand times the transposed left one. An
operand with contiguous rows is then passed plain, one with contiguous columns transposed.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from cudasync.array.dtypes.supported import FLOAT32, FLOAT64
from cudasync.array.expressions.layout import collapsed
from cudasync.driver.blas.gemm import MOST, PLAIN, TRANSPOSED, Factor, Gemm
from cudasync.driver.memory.strides import contiguous_strides

if TYPE_CHECKING:
    from cudasync.array.products.problem import Problem

_LETTERS = {FLOAT32: "f", FLOAT64: "d"}


def blas_form(problem: Problem) -> Gemm | None:
    """The call that computes a product with at least one element and a depth of at least one.

    None if one call cannot compute it: dtypes that need conversion or are not float32 or float64,
    operands without a dense axis or with negative strides, stacks that no single stride reaches,
    and sizes of more than 31 bits.
    """
    letter = _LETTERS.get(problem.dtype)
    if letter is None or problem.dtypes != (problem.dtype,) * 2:
        return None
    return _one_product(problem, letter) or _one_for_each(problem, letter)


def _one_product(problem: Problem, letter: str) -> Gemm | None:
    """A stack by one matrix: the rows of the whole stack are the rows of a single matrix."""
    left, right = problem.strides
    if any(right[:-2]):
        return None
    rows = collapsed(
        (*problem.stack, problem.rows),
        [left[:-1], contiguous_strides((*problem.stack, problem.rows), 1)],
    )
    if len(rows.lengths) > 1 or any(rows.first):
        return None
    count = math.prod(problem.stack) * problem.rows
    down = rows.strides[0][0] if rows.lengths else 0
    return _gemm(problem, letter, count, (down, left[-1]), (0, 0), 1)


def _one_for_each(problem: Problem, letter: str) -> Gemm | None:
    """A product for each matrix of the stack, if each operand's stack has a single stride."""
    left, right = problem.strides
    stack = collapsed(problem.stack, [left[:-2], right[:-2], contiguous_strides(problem.stack, 1)])
    if len(stack.lengths) > 1 or any(stack.first):
        return None
    along = (stack.strides[0][0], stack.strides[1][0]) if stack.lengths else (0, 0)
    return _gemm(problem, letter, problem.rows, left[-2:], along, math.prod(problem.stack))


def _gemm(
    problem: Problem,
    letter: str,
    rows: int,
    left: tuple[int, ...],
    along: tuple[int, int],
    count: int,
) -> Gemm | None:
    """The call with this many `rows`. `left` has that operand's strides down and across, `along`
    has both operands' strides through the stack."""
    columns, depth = problem.columns, problem.depth
    a = _factor((depth, columns), problem.strides[1][-2:], along[1])
    b = _factor((rows, depth), left, along[0])
    if a is None or b is None or max(rows, columns, depth, count) > MOST:
        return None
    return Gemm(letter, columns, rows, depth, a, b, columns, rows * columns, count)


def _factor(shape: tuple[int, ...], strides: tuple[int, ...], along: int) -> Factor | None:
    """The BLAS form of a matrix of ours: plain if its rows are dense, else transposed."""
    if along < 0:
        return None
    for operation, inner, outer in ((PLAIN, 1, 0), (TRANSPOSED, 0, 1)):
        if shape[inner] == 1 or strides[inner] == 1:
            # The stride of an axis of one element has no effect.
            leading = strides[outer] if shape[outer] > 1 else shape[inner]
            if shape[inner] <= leading <= MOST:
                return Factor(operation, leading, along)
    return None
