"""Cellar, abi. cuBLAS: products of matrices, single or batched, in one type or in several."""

from __future__ import annotations

from dataclasses import dataclass
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
    of_computation,
    of_number,
)
from cudasync.softgpu.abi.math_libraries.operands import Matrix, Vector
from cudasync.softgpu.abi.math_libraries.stand_in import LibraryFailure

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from cudasync.softgpu.abi.math_libraries.cublas.handles import Library, Scalar
    from cudasync.softgpu.abi.math_libraries.cublas.level1 import Entry

_POINTER: Final = np.dtype(np.uint64)


@dataclass(frozen=True, slots=True)
class Shapes:
    """The operations and sizes of a product: (m, k) @ (k, n)."""

    operation_a: int
    operation_b: int
    m: int
    n: int
    k: int

    def check(self, leading_a: int, leading_b: int, leading_c: int) -> None:
        """Refuse operands that make no product; CUBLAS_STATUS_INVALID_VALUE."""
        check_operation(self.operation_a, self.operation_b)
        check_sizes(self.m, self.n, self.k)
        check_leading(leading_a, self.k if self.operation_a else self.m)
        check_leading(leading_b, self.n if self.operation_b else self.k)
        check_leading(leading_c, self.m)


@dataclass(frozen=True, slots=True)
class Operand:
    """One of the matrices of a product: its address, its layout, and its type."""

    address: int
    leading: int
    dtype: np.dtype[Any]
    stride: int = 0
    """The distance from one matrix of a batch to the next, in elements."""

    def left(self, shapes: Shapes, index: int = 0) -> Matrix:
        """The operand as A."""
        sizes = (shapes.k, shapes.m) if shapes.operation_a else (shapes.m, shapes.k)
        return self._matrix(*sizes, index)

    def right(self, shapes: Shapes, index: int = 0) -> Matrix:
        """The operand as B."""
        sizes = (shapes.n, shapes.k) if shapes.operation_b else (shapes.k, shapes.n)
        return self._matrix(*sizes, index)

    def target(self, shapes: Shapes, index: int = 0) -> Matrix:
        """The operand as C."""
        return self._matrix(shapes.m, shapes.n, index)

    def _matrix(self, rows: int, columns: int, index: int) -> Matrix:
        address = self.address + index * self.stride * self.dtype.itemsize
        return Matrix(address, rows, columns, self.leading, self.dtype)


def entries(library: Library) -> Iterator[Entry]:
    """The name of each function, its letters and the function."""
    for letter, dtype in DTYPES.items():
        name = f"cublas{letter}gemm"
        yield f"{name}_v2", "piiiiippipippi", _gemm(library, name, dtype)
        yield (
            f"{name}StridedBatched",
            "piiiiippilpilppili",
            _strided(library, f"{name}StridedBatched", dtype),
        )
        yield f"{name}Batched", "piiiiippipippii", _batched(library, f"{name}Batched", dtype)
    yield "cublasSgemmEx", "piiiiippiipiippii", _gemm_s_ex(library)
    yield "cublasGemmEx", "piiiiippiipiippiiii", _gemm_ex(library)
    yield "cublasGemmStridedBatchedEx", "piiiiippiilpiilppiiliii", _strided_ex(library)


def multiply(
    shapes: Shapes,
    left: np.ndarray[Any, Any],
    right: np.ndarray[Any, Any],
    target: np.ndarray[Any, Any],
    factors: tuple[Any, Any],
    of: np.dtype[Any] | None = None,
) -> None:
    """target = alpha * op(left) @ op(right) + beta * target, in the type `of`."""
    alpha, beta = factors

    def product() -> Any:
        a, b = applied(shapes.operation_a, left), applied(shapes.operation_b, right)
        if of is not None:
            a, b = a.astype(of, copy=False), b.astype(of, copy=False)
        return a @ b

    if of is None or of == target.dtype:
        combined(target, beta, alpha, product)
        return
    # Rounded once, at the end.
    result = np.zeros(target.shape, of) if beta == 0 else target.astype(of)
    combined(result, of.type(beta), of.type(alpha), product)
    target[...] = result


def _run(
    library: Library,
    handle: int,
    name: str,
    shapes: Shapes,
    operands: tuple[Operand, Operand, Operand],
    scalars: tuple[Scalar, Scalar],
    of: np.dtype[Any] | None = None,
    batch: int = 1,
) -> None:
    a, b, c = operands
    check_sizes(batch)
    shapes.check(a.leading, b.leading, c.leading)
    lefts = [a.left(shapes, index) for index in range(batch)]
    rights = [b.right(shapes, index) for index in range(batch)]
    targets = [c.target(shapes, index) for index in range(batch)]
    alpha, beta = scalars

    def run() -> None:
        factors = alpha.get(), beta.get()
        for left, right, target in zip(lefts, rights, targets, strict=True):
            multiply(shapes, left.view(), right.view(), target.view(), factors, of)

    read: Sequence[Matrix] = [] if alpha.is_zero else [*lefts, *rights]
    kept = [] if beta.is_zero else targets
    library.run(handle, name, run, reads=[*read, *kept], writes=targets, scalars=scalars)


def _gemm(library: Library, name: str, dtype: np.dtype[Any]) -> Callable[..., None]:
    def gemm(handle: int, *given: int) -> None:
        ta, tb, m, n, k, alpha, a, leading_a, b, leading_b, beta, c, leading_c = given
        operands = (
            Operand(a, leading_a, dtype),
            Operand(b, leading_b, dtype),
            Operand(c, leading_c, dtype),
        )
        scalars = library.scalar(handle, alpha, dtype), library.scalar(handle, beta, dtype)
        _run(library, handle, name, Shapes(ta, tb, m, n, k), operands, scalars)

    return gemm


def _strided(library: Library, name: str, dtype: np.dtype[Any]) -> Callable[..., None]:
    def gemm(handle: int, *given: int) -> None:
        ta, tb, m, n, k, alpha, *rest = given
        a, leading_a, stride_a, b, leading_b, stride_b, beta, c, leading_c, stride_c, batch = rest
        operands = (
            Operand(a, leading_a, dtype, _signed(stride_a)),
            Operand(b, leading_b, dtype, _signed(stride_b)),
            Operand(c, leading_c, dtype, _signed(stride_c)),
        )
        scalars = library.scalar(handle, alpha, dtype), library.scalar(handle, beta, dtype)
        _run(library, handle, name, Shapes(ta, tb, m, n, k), operands, scalars, None, batch)

    return gemm


def _batched(library: Library, name: str, dtype: np.dtype[Any]) -> Callable[..., None]:
    def gemm(handle: int, *given: int) -> None:
        ta, tb, m, n, k, alpha, a, leading_a, b, leading_b, beta, c, leading_c, batch = given
        shapes = Shapes(ta, tb, m, n, k)
        check_sizes(batch)
        shapes.check(leading_a, leading_b, leading_c)
        # The matrices' addresses lie in device memory, so they are known when the call executes.
        tables = [Vector(each, batch, 1, _POINTER) for each in (a, b, c)]
        of_a, of_b = library.scalar(handle, alpha, dtype), library.scalar(handle, beta, dtype)
        place = library.table.machine.memory.place

        def run() -> None:
            factors = of_a.get(), of_b.get()
            for each in zip(*(table.view().tolist() for table in tables), strict=True):
                left = Operand(each[0], leading_a, dtype).left(shapes)
                right = Operand(each[1], leading_b, dtype).right(shapes)
                target = Operand(each[2], leading_c, dtype).target(shapes)
                for matrix in (left, right, target):
                    place(*matrix.span)
                multiply(shapes, left.view(), right.view(), target.view(), factors)

        library.run(handle, name, run, reads=tables, writes=[], scalars=[of_a, of_b], is_open=True)

    return gemm


def _gemm_s_ex(library: Library) -> Callable[..., None]:
    def gemm(handle: int, *given: int) -> None:
        ta, tb, m, n, k, alpha, a, type_a, leading_a, b, type_b, leading_b, *rest = given
        beta, c, type_c, leading_c = rest
        operands = (
            Operand(a, leading_a, of_number(type_a)),
            Operand(b, leading_b, of_number(type_b)),
            Operand(c, leading_c, of_number(type_c)),
        )
        of = DTYPES["S"]
        scalars = library.scalar(handle, alpha, of), library.scalar(handle, beta, of)
        _run(library, handle, "cublasSgemmEx", Shapes(ta, tb, m, n, k), operands, scalars, of)

    return gemm


def _gemm_ex(library: Library) -> Callable[..., None]:
    def gemm(handle: int, *given: int) -> None:
        ta, tb, m, n, k, alpha, a, type_a, leading_a, b, type_b, leading_b, *rest = given
        beta, c, type_c, leading_c, compute, _algorithm = rest
        operands = (
            Operand(a, leading_a, of_number(type_a)),
            Operand(b, leading_b, of_number(type_b)),
            Operand(c, leading_c, of_number(type_c)),
        )
        _mixed(library, handle, "cublasGemmEx", Shapes(ta, tb, m, n, k), operands,
               (alpha, beta), compute)  # fmt: skip

    return gemm


def _strided_ex(library: Library) -> Callable[..., None]:
    def gemm(handle: int, *given: int) -> None:
        ta, tb, m, n, k, alpha, *rest = given
        a, type_a, leading_a, stride_a, b, type_b, leading_b, stride_b, *rest = rest
        beta, c, type_c, leading_c, stride_c, batch, compute, _algorithm = rest
        operands = (
            Operand(a, leading_a, of_number(type_a), _signed(stride_a)),
            Operand(b, leading_b, of_number(type_b), _signed(stride_b)),
            Operand(c, leading_c, of_number(type_c), _signed(stride_c)),
        )
        name = "cublasGemmStridedBatchedEx"
        shapes = Shapes(ta, tb, m, n, k)
        _mixed(library, handle, name, shapes, operands, (alpha, beta), compute, batch)

    return gemm


def _mixed(
    library: Library,
    handle: int,
    name: str,
    shapes: Shapes,
    operands: tuple[Operand, Operand, Operand],
    scalars: tuple[int, int],
    compute: int,
    batch: int = 1,
) -> None:
    is_complex = any(each.dtype.kind == "c" for each in operands)
    if is_complex and len({each.dtype for each in operands}) > 1:
        raise LibraryFailure(INVALID_VALUE, "complex matrices must all have one type")
    of_scalars, of = of_computation(compute, is_complex=is_complex)
    alpha, beta = (library.scalar(handle, each, of_scalars) for each in scalars)
    _run(library, handle, name, shapes, operands, (alpha, beta), of, batch)


def _signed(word: int) -> int:
    return word - (word >> 63 << 64)
