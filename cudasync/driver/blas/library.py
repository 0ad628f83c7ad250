"""Floor 1, BLAS. The cuBLAS library: finds it, loads it, and has the signatures of its functions.

It comes from the wheel nvidia-cublas (nvidia-cublas-cu12 for CUDA 12), or from a toolkit.
Signatures and codes are from the cuBLAS documentation; they are the same from version 11 to 13.
"""

from __future__ import annotations

import ctypes
import importlib
from ctypes import POINTER, c_double, c_float, c_int, c_longlong, c_size_t, c_void_p
from functools import cache
from typing import Any

from cudasync.errors import CudaError, CudasyncError

# Names for the dynamic loader, if cuda.pathfinder is not available to search the wheels.
_NAMES = ("libcublas.so.13", "libcublas.so.12")

# cublasStatus_t.
_STATUS = {
    1: "CUBLAS_STATUS_NOT_INITIALIZED",
    3: "CUBLAS_STATUS_ALLOC_FAILED",
    7: "CUBLAS_STATUS_INVALID_VALUE",
    8: "CUBLAS_STATUS_ARCH_MISMATCH",
    11: "CUBLAS_STATUS_MAPPING_ERROR",
    13: "CUBLAS_STATUS_EXECUTION_FAILED",
    14: "CUBLAS_STATUS_INTERNAL_ERROR",
    15: "CUBLAS_STATUS_NOT_SUPPORTED",
    16: "CUBLAS_STATUS_LICENSE_ERROR",
}
_HINTS = {
    1: "this cuBLAS may be newer than the driver: update the driver, or set CUDASYNC_CUBLAS=0",
    3: "the device has no memory left for cuBLAS: call cs.empty_cache(), or set CUDASYNC_CUBLAS=0",
    8: "this cuBLAS has no code for the device: install a newer one, or set CUDASYNC_CUBLAS=0",
}


def _gemm_of(number: Any) -> list[Any]:
    """Handle, two operations, m, n, k, alpha; A and B, each with its leading dimension and stride;
    beta; C with the same; the number of matrices."""
    matrix = [c_void_p, c_int, c_longlong]
    scalar = POINTER(number)
    return [c_void_p, *[c_int] * 5, scalar, *matrix, *matrix, scalar, *matrix, c_int]


_SIGNATURES: dict[str, list[Any]] = {
    "cublasGetProperty": [c_int, POINTER(c_int)],
    "cublasCreate_v2": [POINTER(c_void_p)],
    "cublasDestroy_v2": [c_void_p],
    "cublasSetStream_v2": [c_void_p, c_void_p],
    "cublasSetWorkspace_v2": [c_void_p, c_void_p, c_size_t],
    "cublasSetMathMode": [c_void_p, c_int],
    "cublasSgemmStridedBatched": _gemm_of(c_float),
    "cublasDgemmStridedBatched": _gemm_of(c_double),
}


class Library:
    """The functions of a cuBLAS, by name, and its path."""

    def __init__(self, loaded: ctypes.CDLL, path: str) -> None:
        self.path = path
        self._functions = {}
        for name, arguments in _SIGNATURES.items():
            try:
                function = getattr(loaded, name)
            except AttributeError as error:
                raise CudasyncError(f"{path} has no {name}: install cuBLAS 11 or later") from error
            function.argtypes = arguments
            function.restype = c_int
            self._functions[name] = function
        self.version = ".".join(str(self._property(which)) for which in range(3))

    def _property(self, which: int) -> int:
        """Major, minor and patch of the version."""
        value = c_int()
        self.call("cublasGetProperty", which, value)
        return value.value

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function. Raises CudaError with the status that it returns."""
        status = self._functions[name](*arguments)
        if status:
            raise refused(name, status)

    def status(self, name: str, *arguments: Any) -> int:
        """Call a function and return its status; 0 means success."""
        return int(self._functions[name](*arguments))

    def __repr__(self) -> str:
        return f"cuBLAS {self.version} at {self.path}"


def refused(name: str, status: int) -> CudaError:
    """The error for a status other than success, for the caller to raise."""
    told = _STATUS.get(status, "CUBLAS_STATUS_UNRECOGNIZED")
    return CudaError(status, told, call=name, hint=_HINTS.get(status, ""))


@cache
def opened(path: str) -> Library:
    """The library at `path`. Raises CudasyncError if it cannot be loaded, or is no cuBLAS."""
    try:
        return Library(ctypes.CDLL(path), path)
    except OSError as error:
        raise CudasyncError(f"{path} cannot be loaded: {error}") from error


def found() -> Library | None:
    """The library of the wheel, or of a toolkit; None if there is none."""
    path = _path()
    return None if path is None else opened(path)


def _path() -> str | None:
    try:
        finder: Any = importlib.import_module("cuda.pathfinder")
        # The finder first loads cublasLt, which cuBLAS needs, and returns the path.
        return str(finder.load_nvidia_dynamic_lib("cublas").abs_path)
    # RuntimeError if there is none; older bindings have no finder, or a less capable one.
    except (ImportError, AttributeError, RuntimeError, ValueError):
        return next(filter(_can_be_loaded, _NAMES), None)


def _can_be_loaded(name: str) -> bool:
    try:
        ctypes.CDLL(name)
    except OSError:
        return False
    return True
