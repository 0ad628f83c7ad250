"""Cellar, abi. cuBLAS, Level-3 and its extensions: matrices alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from cudasync.softgpu.abi.math_libraries.cublas.handles import INVALID_VALUE
from cudasync.softgpu.abi.math_libraries.cublas.level2 import combined
from cudasync.softgpu.abi.math_libraries.cublas.types import (
    DTYPES,
    applied,
    check_leading,
    check_operation,
    check_sizes,
)
from cudasync.softgpu.abi.math_libraries.operands import Matrix, Vector
from cudasync.softgpu.abi.math_libraries.stand_in import LibraryFailure

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cudasync.softgpu.abi.math_libraries.cublas.handles import Library
    from cudasync.softgpu.abi.math_libraries.cublas.level1 import Entry

# cublasSideMode_t, cublasFillMode_t, cublasDiagType_t.
_LEFT: Final = 0
_LOWER: Final = 0
_UNIT: Final = 1


def entries(library: Library) -> Iterator[Entry]:
    """The name of each function, its letters and the function."""
    for letter, dtype in DTYPES.items():
        yield f"cublas{letter}syrk_v2", "piiiippippi", _syrk(library, letter, dtype)
        yield f"cublas{letter}trsm_v2", "piiiiiippipi", _trsm(library, letter, dtype)
        yield f"cublas{letter}geam", "piiiippippipi", _geam(library, letter, dtype)
        yield f"cublas{letter}dgmm", "piiipipipi", _dgmm(library, letter, dtype)


def _syrk(library: Library, letter: str, dtype: np.dtype[Any]) -> Callable[..., None]:
    def syrk(
        handle: int,
        part: int,
        operation: int,
        n: int,
        k: int,
        alpha: int,
        a: int,
        leading_a: int,
        beta: int,
        c: int,
        leading_c: int,
    ) -> None:
        check_operation(operation)
        check_sizes(n, k)
        check_leading(leading_a, k if operation else n)
        check_leading(leading_c, n)
        factor, kept = library.scalar(handle, alpha, dtype), library.scalar(handle, beta, dtype)
        rows, columns = (k, n) if operation else (n, k)
        source = Matrix(a, rows, columns, leading_a, dtype)
        target = Matrix(c, n, n, leading_c, dtype)

        def run() -> None:
            view = source.view()
            left = view.T if operation else view
            whole = target.view()
            result = np.array(whole)
            combined(result, kept.get(), factor.get(), lambda: left @ left.T)
            # The other half is not written.
            at = np.tril_indices(n) if part == _LOWER else np.triu_indices(n)
            whole[at] = result[at]

        library.run(
            handle,
            f"cublas{letter}syrk",
            run,
            reads=[source, target],
            writes=[target],
            scalars=[factor, kept],
        )

    return syrk


def _trsm(library: Library, letter: str, dtype: np.dtype[Any]) -> Callable[..., None]:
    def trsm(
        handle: int,
        side: int,
        part: int,
        operation: int,
        diagonal: int,
        m: int,
        n: int,
        alpha: int,
        a: int,
        leading_a: int,
        b: int,
        leading_b: int,
    ) -> None:
        check_operation(operation)
        check_sizes(m, n)
        order = m if side == _LEFT else n
        check_leading(leading_a, order)
        check_leading(leading_b, m)
        factor = library.scalar(handle, alpha, dtype)
        source = Matrix(a, order, order, leading_a, dtype)
        target = Matrix(b, m, n, leading_b, dtype)

        def run() -> None:
            view = source.view()
            triangle = np.tril(view) if part == _LOWER else np.triu(view)
            if diagonal == _UNIT:
                np.fill_diagonal(triangle, 1)
            whole = target.view()
            right = factor.get() * whole
            if side == _LEFT:
                whole[...] = substituted(
                    applied(operation, triangle),
                    right,
                    is_lower=(part == _LOWER) != bool(operation),
                )
            else:
                # X op(A) = B is op(A)^T X^T = B^T.
                solved = substituted(
                    applied(operation, triangle).T,
                    right.T,
                    is_lower=(part == _LOWER) == bool(operation),
                )
                whole[...] = solved.T

        operands = [source, target]
        name = f"cublas{letter}trsm"
        library.run(handle, name, run, reads=operands, writes=[target], scalars=[factor])

    return trsm


def substituted(
    triangle: np.ndarray[Any, Any], right: np.ndarray[Any, Any], *, is_lower: bool
) -> np.ndarray[Any, Any]:
    """Solve triangle @ X = right by substitution; a zero on the diagonal gives infinities."""
    found = np.array(right)
    count = len(triangle)
    order = range(count) if is_lower else range(count - 1, -1, -1)
    with np.errstate(all="ignore"):
        for row in order:
            done = slice(0, row) if is_lower else slice(row + 1, count)
            found[row] -= triangle[row, done] @ found[done]
            found[row] /= triangle[row, row]
    return found


def _geam(library: Library, letter: str, dtype: np.dtype[Any]) -> Callable[..., None]:
    def geam(
        handle: int,
        operation_a: int,
        operation_b: int,
        m: int,
        n: int,
        alpha: int,
        a: int,
        leading_a: int,
        beta: int,
        b: int,
        leading_b: int,
        c: int,
        leading_c: int,
    ) -> None:
        check_operation(operation_a, operation_b)
        check_sizes(m, n)
        check_leading(leading_c, m)
        of_a, of_b = library.scalar(handle, alpha, dtype), library.scalar(handle, beta, dtype)
        left = _operand(a, operation_a, m, n, leading_a, dtype)
        right = _operand(b, operation_b, m, n, leading_b, dtype)
        target = Matrix(c, m, n, leading_c, dtype)

        def run() -> None:
            total = np.zeros((m, n), dtype)
            for factor, operation, operand in (
                (of_a.get(), operation_a, left),
                (of_b.get(), operation_b, right),
            ):
                if factor != 0:
                    total += factor * applied(operation, operand.view())
            target.view()[...] = total

        # An operand with a zero factor may be anything, even no memory.
        read = [x for x, factor in ((left, of_a), (right, of_b)) if not factor.is_zero]
        library.run(
            handle,
            f"cublas{letter}geam",
            run,
            reads=read,
            writes=[target],
            scalars=[of_a, of_b],
        )

    return geam


def _operand(
    address: int, operation: int, rows: int, columns: int, leading: int, dtype: np.dtype[Any]
) -> Matrix:
    """The matrix that has (rows, columns) after the operation is applied."""
    if operation:
        rows, columns = columns, rows
    check_leading(leading, rows)
    return Matrix(address, rows, columns, leading, dtype)


def _dgmm(library: Library, letter: str, dtype: np.dtype[Any]) -> Callable[..., None]:
    def dgmm(
        handle: int,
        side: int,
        m: int,
        n: int,
        a: int,
        leading_a: int,
        x: int,
        step: int,
        c: int,
        leading_c: int,
    ) -> None:
        check_sizes(m, n)
        check_leading(leading_a, m)
        check_leading(leading_c, m)
        if side not in (0, 1):
            raise LibraryFailure(INVALID_VALUE, f"there is no cublasSideMode_t {side}")
        source, target = Matrix(a, m, n, leading_a, dtype), Matrix(c, m, n, leading_c, dtype)
        scales = Vector(x, m if side == _LEFT else n, step, dtype)

        def run() -> None:
            factors = scales.view()
            column = factors[:, None] if side == _LEFT else factors[None, :]
            target.view()[...] = column * source.view()

        library.run(handle, f"cublas{letter}dgmm", run, reads=[source, scales], writes=[target])

    return dgmm
