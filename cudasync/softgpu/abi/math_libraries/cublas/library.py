"""Cellar, abi. The functions of cuBLAS that are implemented, and those that are refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cudasync.softgpu.abi.math_libraries.cublas import level1, level2, level3, products
from cudasync.softgpu.abi.math_libraries.cublas.handles import CODES, Library
from cudasync.softgpu.abi.math_libraries.stand_in import StandIn

if TYPE_CHECKING:
    from collections.abc import Callable

    from cudasync.softgpu.abi.stub.dispatch_table import FunctionTable

_FACTORISATIONS: Final = ("getrfBatched", "getrsBatched", "getriBatched", "trsmBatched")
REFUSED: Final = (
    *(f"cublas{letter}{name}" for letter in "SDCZ" for name in _FACTORISATIONS),
    *(f"cublas{letter}{name}" for letter in "SD" for name in ("tpttr", "trttp")),
)


def calls(library: Library) -> dict[str, tuple[str, Callable[..., None]]]:
    """By name: the letters of the arguments and the function."""
    found: dict[str, tuple[str, Callable[..., None]]] = {
        "cublasCreate_v2": ("p", library.create),
        "cublasDestroy_v2": ("p", library.destroy),
        "cublasGetVersion_v2": ("pp", library.version),
        "cublasSetStream_v2": ("pp", library.set_stream),
        "cublasGetStream_v2": ("pp", library.get_stream),
        "cublasSetPointerMode_v2": ("pi", library.set_pointer_mode),
        "cublasGetPointerMode_v2": ("pp", library.get_pointer_mode),
        "cublasSetMathMode": ("pi", library.set_math_mode),
        "cublasGetMathMode": ("pp", library.get_math_mode),
    }
    for chapter in (level1, level2, level3, products):
        for name, letters, call in chapter.entries(library):
            found[name] = letters, call
    return found


def load(table: FunctionTable, major: int) -> list[StandIn]:
    """Load the library of a major version, and the library that clients load before it."""
    library = Library(table, major)
    return [
        StandIn(table, f"libcublasLt.so.{major}", {}, (), CODES),
        StandIn(table, f"libcublas.so.{major}", calls(library), REFUSED, CODES),
    ]
