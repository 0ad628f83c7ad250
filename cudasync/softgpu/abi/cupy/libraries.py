"""Cellar, abi. The libraries of mathematics that CuPy is linked with: stood in for, or refused.

CuPy asks for a library by the name of its own module, and then loads that module, which the loader
finds linked with a SONAME: so a stand-in is loaded when that name is asked for.
"""

from __future__ import annotations

import importlib
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from cudasync.softgpu.abi.stub.dispatch_table import FunctionTable

STOOD_IN_FOR: Final = ("cublas", "cufft", "curand")
REFUSED: Final = {
    "cusolver": "cuSOLVER",
    "cusparse": "cuSPARSE",
    "cusparselt": "cuSPARSELt",
    "cutensor": "cuTENSOR",
    "nccl": "NCCL",
}

_loaded: dict[str, Any] = {}


def ask(name: str, table: FunctionTable, version: Callable[[], int]) -> None:
    """Load what stands in for a library; ImportError for one that is refused."""
    if name in REFUSED:
        raise ImportError(
            f"{REFUSED[name]} is not supported by the software GPU: of CUDA's libraries there are "
            "cuBLAS, cuFFT and cuRAND"
        )
    if name == "nvrtc":
        _find_nvrtc()
    if name in STOOD_IN_FOR and name not in _loaded:
        room: Any = importlib.import_module(f"cudasync.softgpu.abi.math_libraries.{name}.library")
        _loaded[name] = room.load(table, version() // 1000)


def _find_nvrtc() -> None:
    """Load NVRTC from its wheel, where there is one: CuPy 13 asks the loader alone for it."""
    with suppress(Exception):
        pathfinder: Any = importlib.import_module("cuda.pathfinder")
        pathfinder.load_nvidia_dynamic_lib("nvrtc")


def amend(module: ModuleType, table: FunctionTable, version: Callable[[], int]) -> None:
    """Have the module's `__getattr__` ask first; of CuPy 13, a package has none."""
    before: Callable[[str], Any] | None = vars(module).get("__getattr__")
    if before is None:
        return

    def getter(name: str) -> Any:
        ask(name, table, version)
        return before(name)

    module.__getattr__ = getter  # type: ignore[method-assign]
