"""Cellar, abi. cuBLAS, Level-1: vectors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from cudasync.softgpu.abi.math_libraries.cublas.types import DTYPES, REAL, real_of
from cudasync.softgpu.abi.math_libraries.operands import Vector

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cudasync.softgpu.abi.math_libraries.cublas.handles import Library

    Entry = tuple[str, str, Callable[..., None]]

_INT = np.dtype(np.int32)


def entries(library: Library) -> Iterator[Entry]:
    """The name of each function, its letters and the function."""
    for letter, dtype in DTYPES.items():
        real = real_of(letter)
        yield f"cublas{letter}axpy_v2", "pippipi", _axpy(library, letter, dtype)
        yield f"cublas{letter}scal_v2", "pippi", _scal(library, letter, dtype, dtype)
        norm = letter if letter in REAL else real + letter.lower()
        yield (
            f"cublas{norm}nrm2_v2",
            "pipip",
            _reduction(library, f"cublas{norm}nrm2", _nrm2, dtype, DTYPES[real]),
        )
        yield (
            f"cublas{norm}asum_v2",
            "pipip",
            _reduction(library, f"cublas{norm}asum", _asum, dtype, DTYPES[real]),
        )
        for which, choose in (("max", np.argmax), ("min", np.argmin)):
            name = f"cublasI{letter.lower()}a{which}"
            yield f"{name}_v2", "pipip", _reduction(library, name, _index(choose), dtype, _INT)
        for suffix in ("",) if letter in REAL else ("u", "c"):
            name = f"cublas{letter}dot{suffix}"
            yield f"{name}_v2", "pipipip", _dot(library, name, dtype, conjugated=suffix == "c")
    yield "cublasCsscal_v2", "pippi", _scal(library, "Cs", DTYPES["C"], DTYPES["S"])
    yield "cublasZdscal_v2", "pippi", _scal(library, "Zd", DTYPES["Z"], DTYPES["D"])


def _axpy(library: Library, letter: str, dtype: np.dtype[Any]) -> Callable[..., None]:
    def axpy(handle: int, n: int, alpha: int, x: int, step_x: int, y: int, step_y: int) -> None:
        factor = library.scalar(handle, alpha, dtype)
        source, target = Vector(x, n, step_x, dtype), Vector(y, n, step_y, dtype)

        def run() -> None:
            view = target.view()
            view += factor.get() * source.view()

        library.run(
            handle,
            f"cublas{letter}axpy",
            run,
            reads=[source, target],
            writes=[target],
            scalars=[factor],
        )

    return axpy


def _scal(
    library: Library, letter: str, dtype: np.dtype[Any], of_factor: np.dtype[Any]
) -> Callable[..., None]:
    def scal(handle: int, n: int, alpha: int, x: int, step: int) -> None:
        factor = library.scalar(handle, alpha, of_factor)
        # As in BLAS, nothing is done for a negative step.
        vector = Vector(x, n if step > 0 else 0, step, dtype)

        def run() -> None:
            view = vector.view()
            view *= factor.get()

        name = f"cublas{letter}scal"
        library.run(handle, name, run, reads=[vector], writes=[vector], scalars=[factor])

    return scal


def _reduction(
    library: Library,
    name: str,
    reduce: Callable[[np.ndarray[Any, Any]], Any],
    dtype: np.dtype[Any],
    of_result: np.dtype[Any],
) -> Callable[..., None]:
    def call(handle: int, n: int, x: int, step: int, result: int) -> None:
        # As in BLAS, the result is 0 for a negative step.
        vector = Vector(x, n if step > 0 else 0, step, dtype)
        library.answer(
            handle,
            name,
            lambda: reduce(vector.view()),
            reads=[vector],
            target=result,
            dtype=of_result,
        )

    return call


def _dot(
    library: Library, name: str, dtype: np.dtype[Any], *, conjugated: bool
) -> Callable[..., None]:
    def dot(handle: int, n: int, x: int, step_x: int, y: int, step_y: int, result: int) -> None:
        left, right = Vector(x, n, step_x, dtype), Vector(y, n, step_y, dtype)

        def compute() -> Any:
            product = np.vdot if conjugated else np.dot
            return product(left.view(), right.view())

        library.answer(handle, name, compute, reads=[left, right], target=result, dtype=dtype)

    return dot


def _nrm2(vector: np.ndarray[Any, Any]) -> Any:
    """The Euclidean norm, without overflow in the squares of large numbers."""
    largest = np.abs(vector).max(initial=0)
    if not largest or not np.isfinite(largest):
        return largest
    return np.linalg.norm(vector / largest) * largest


def _magnitudes(vector: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Magnitudes as in BLAS: |re| + |im| of a complex number."""
    if np.iscomplexobj(vector):
        vector = np.abs(vector.real) + np.abs(vector.imag)
    found: np.ndarray[Any, Any] = np.abs(vector)
    return found


def _asum(vector: np.ndarray[Any, Any]) -> Any:
    return _magnitudes(vector).sum()


def _index(choose: Callable[..., Any]) -> Callable[[np.ndarray[Any, Any]], int]:
    """The index of the first such element, from 1; 0 for an empty vector."""
    return lambda vector: int(choose(_magnitudes(vector))) + 1 if vector.size else 0
