"""Cellar, abi. The libraries of mathematics that CuPy is linked with: stood in for, or refused.

CuPy asks for a library by the name of its own module, and then loads that module, which the loader
finds linked with a SONAME: so a stand-in is loaded when that name is asked for.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from cudasync.softgpu.abi.table import FunctionTable

STOOD_IN_FOR: Final = ("cublas", "cufft", "curand")
REFUSED: Final = {
    "cusolver": "cuSOLVER",
    "cusparse": "cuSPARSE",
    "cusparselt": "cuSPARSELt",
    "cutensor": "cuTENSOR",
    "nccl": "NCCL",
}
_MAJORS: Final = (12, 13)

_loaded: dict[str, Any] = {}


def ask(name: str, table: FunctionTable, version: Callable[[], int]) -> None:
    """Load what stands in for a library; ImportError for one that is refused."""
    if name in REFUSED:
        raise ImportError(
            f"{REFUSED[name]} is not supported by the software GPU: of CUDA's libraries there are "
            "cuBLAS, cuFFT and cuRAND"
        )
    if name in STOOD_IN_FOR and name not in _loaded:
        major = version() // 1000
        if major not in _MAJORS:
            raise ImportError(
                f"this CuPy is built for CUDA {major}, which the software GPU does not know: "
                "install cupy-cuda12x or cupy-cuda13x"
            )
        room: Any = importlib.import_module(f"cudasync.softgpu.abi.math_libraries.{name}.library")
        _loaded[name] = room.load(table, major)


def amend(module: ModuleType, table: FunctionTable, version: Callable[[], int]) -> None:
    """Have the module's `__getattr__` ask first."""
    before: Callable[[str], Any] = vars(module)["__getattr__"]

    def getter(name: str) -> Any:
        ask(name, table, version)
        return before(name)

    module.__getattr__ = getter  # type: ignore[method-assign]
