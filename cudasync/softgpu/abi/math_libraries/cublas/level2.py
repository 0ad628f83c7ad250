"""Cellar, abi. cuBLAS, Level-2: a matrix and vectors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from cudasync.softgpu.abi.math_libraries.cublas.types import (
    DTYPES,
    REAL,
    applied,
    check_leading,
    check_operation,
    check_sizes,
)
from cudasync.softgpu.abi.math_libraries.operands import Matrix, Vector

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cudasync.softgpu.abi.math_libraries.cublas.handles import Library
    from cudasync.softgpu.abi.math_libraries.cublas.level1 import Entry

_LOWER = 0


def entries(library: Library) -> Iterator[Entry]:
    """The name of each function, its letters and the function."""
    for letter, dtype in DTYPES.items():
        yield f"cublas{letter}gemv_v2", "piiippipippi", _gemv(library, letter, dtype)
        for suffix in ("",) if letter in REAL else ("u", "c"):
            name = f"cublas{letter}ger{suffix}"
            yield f"{name}_v2", "piippipipi", _ger(library, name, dtype, conjugated=suffix == "c")
        if letter in REAL:
            yield f"cublas{letter}sbmv_v2", "piiippipippi", _sbmv(library, letter, dtype)


def combined(
    target: np.ndarray[Any, Any], beta: Any, alpha: Any, product: Callable[[], Any]
) -> None:
    """target = alpha * product + beta * target; an operand with a zero factor is not read."""
    if beta == 0:
        target[...] = 0
    elif beta != 1:
        target *= beta
    if alpha != 0:
        target += (alpha * product()).astype(target.dtype)


def _gemv(library: Library, letter: str, dtype: np.dtype[Any]) -> Callable[..., None]:
    def gemv(
        handle: int,
        operation: int,
        m: int,
        n: int,
        alpha: int,
        a: int,
        leading: int,
        x: int,
        step_x: int,
        beta: int,
        y: int,
        step_y: int,
    ) -> None:
        check_operation(operation)
        check_sizes(m, n)
        check_leading(leading, m)
        factor, kept = library.scalar(handle, alpha, dtype), library.scalar(handle, beta, dtype)
        matrix = Matrix(a, m, n, leading, dtype)
        source = Vector(x, m if operation else n, step_x, dtype)
        target = Vector(y, n if operation else m, step_y, dtype)

        def run() -> None:
            def product() -> Any:
                return applied(operation, matrix.view()) @ source.view()

            combined(target.view(), kept.get(), factor.get(), product)

        read: list[Matrix | Vector] = [] if kept.is_zero else [target]
        library.run(
            handle,
            f"cublas{letter}gemv",
            run,
            reads=[matrix, source, *read],
            writes=[target],
            scalars=[factor, kept],
        )

    return gemv


def _ger(
    library: Library, name: str, dtype: np.dtype[Any], *, conjugated: bool
) -> Callable[..., None]:
    def ger(
        handle: int,
        m: int,
        n: int,
        alpha: int,
        x: int,
        step_x: int,
        y: int,
        step_y: int,
        a: int,
        leading: int,
    ) -> None:
        check_sizes(m, n)
        check_leading(leading, m)
        factor = library.scalar(handle, alpha, dtype)
        left, right = Vector(x, m, step_x, dtype), Vector(y, n, step_y, dtype)
        target = Matrix(a, m, n, leading, dtype)

        def run() -> None:
            row = right.view().conj() if conjugated else right.view()
            view = target.view()
            view += factor.get() * np.outer(left.view(), row)

        operands: list[Matrix | Vector] = [left, right, target]
        library.run(handle, name, run, reads=operands, writes=[target], scalars=[factor])

    return ger


def _sbmv(library: Library, letter: str, dtype: np.dtype[Any]) -> Callable[..., None]:
    def sbmv(
        handle: int,
        part: int,
        n: int,
        k: int,
        alpha: int,
        a: int,
        leading: int,
        x: int,
        step_x: int,
        beta: int,
        y: int,
        step_y: int,
    ) -> None:
        check_sizes(n, k)
        check_leading(leading, k + 1)
        factor, kept = library.scalar(handle, alpha, dtype), library.scalar(handle, beta, dtype)
        band = Matrix(a, k + 1, n, leading, dtype)
        source, target = Vector(x, n, step_x, dtype), Vector(y, n, step_y, dtype)

        def run() -> None:
            whole = _symmetric(band.view(), n, k, is_lower=part == _LOWER)
            combined(target.view(), kept.get(), factor.get(), lambda: whole @ source.view())

        read: list[Matrix | Vector] = [] if kept.is_zero else [target]
        library.run(
            handle,
            f"cublas{letter}sbmv",
            run,
            reads=[band, source, *read],
            writes=[target],
            scalars=[factor, kept],
        )

    return sbmv


def _symmetric(
    band: np.ndarray[Any, Any], n: int, k: int, *, is_lower: bool
) -> np.ndarray[Any, Any]:
    """A symmetric matrix from its diagonals: each diagonal is a row of the band."""
    whole = np.zeros((n, n), band.dtype)
    for distance in range(min(k + 1, n)):
        count = n - distance
        # In the upper form, a diagonal's row begins with elements outside the matrix.
        values = band[distance, :count] if is_lower else band[k - distance, distance:]
        at = np.arange(count)
        whole[at + distance, at] = whole[at, at + distance] = values
    return whole
