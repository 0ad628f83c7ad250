"""Cellar, abi. Types of cuBLAS: by the letter in a function's name, and by cudaDataType."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from cudasync.softgpu.abi.math_libraries.cublas.handles import CODES, INVALID_VALUE
from cudasync.softgpu.abi.math_libraries.stand_in import LibraryFailure

DTYPES: Final[dict[str, np.dtype[Any]]] = {
    "S": np.dtype(np.float32),
    "D": np.dtype(np.float64),
    "C": np.dtype(np.complex64),
    "Z": np.dtype(np.complex128),
}
REAL: Final = "SD"
# cudaDataType.
_BY_NUMBER: Final[dict[int, np.dtype[Any]]] = {
    0: DTYPES["S"],
    1: DTYPES["D"],
    2: np.dtype(np.float16),
    4: DTYPES["C"],
    5: DTYPES["Z"],
}
# cublasComputeType_t: computations in halves, in floats and in doubles.
_HALF, _FLOAT, _DOUBLE = (64, 65), (68, 69, 74, 75, 77), (70, 71)


def real_of(letter: str) -> str:
    """The letter of a type's real and imaginary parts."""
    return "S" if letter in "SC" else "D"


def of_number(number: int) -> np.dtype[Any]:
    """The type of a cudaDataType; CUBLAS_STATUS_NOT_SUPPORTED for an unsupported one."""
    found = _BY_NUMBER.get(number)
    if found is None:
        raise LibraryFailure(
            CODES.not_supported,
            f"matrices of cudaDataType {number} are not modelled: use half, float, double, "
            "complex float or complex double",
        )
    return found


def of_computation(number: int, *, is_complex: bool) -> tuple[np.dtype[Any], np.dtype[Any]]:
    """The type of the scalars, and the type that products are computed in."""
    if number in _HALF:
        return np.dtype(np.float16), DTYPES["S"]
    if number in _FLOAT:
        found = DTYPES["C" if is_complex else "S"]
        return found, found
    if number in _DOUBLE:
        found = DTYPES["Z" if is_complex else "D"]
        return found, found
    raise LibraryFailure(
        CODES.not_supported,
        f"cublasComputeType_t {number} is not modelled: use one of a floating-point type",
    )


def check_operation(*operations: int) -> None:
    """Refuse a number that is not a cublasOperation_t."""
    for each in operations:
        if each not in range(3):
            raise LibraryFailure(INVALID_VALUE, f"there is no cublasOperation_t {each}")


def check_sizes(*sizes: int) -> None:
    """Refuse sizes below 0."""
    if min(sizes) < 0:
        raise LibraryFailure(INVALID_VALUE, f"a size is negative: {sizes}")


def check_leading(leading: int, rows: int) -> None:
    """Refuse a leading dimension with which columns overlap."""
    if leading < max(1, rows):
        raise LibraryFailure(
            INVALID_VALUE, f"the leading dimension {leading} is less than the {rows} rows"
        )


def applied(operation: int, matrix: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The matrix, its transpose (1) or its conjugate transpose (2)."""
    if not operation:
        return matrix
    return matrix.T if operation == 1 else matrix.conj().T
