"""Cellar, abi. The mathematical libraries that CuPy is linked with: stand-ins, or refusals.

CuPy asks for a library by the name of its own module, and then loads that module, which is linked
with the library's SONAME. So a stand-in is loaded when the module's name is asked for.
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
    """Load the stand-in for a library; ImportError if the library is refused."""
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
    """Load NVRTC from its wheel, if there is one: CuPy 13 only asks the loader for it."""
    with suppress(Exception):
        pathfinder: Any = importlib.import_module("cuda.pathfinder")
        pathfinder.load_nvidia_dynamic_lib("nvrtc")


def amend(module: ModuleType, table: FunctionTable, version: Callable[[], int]) -> None:
    """Make the module's `__getattr__` call `ask` first; packages of CuPy 13 have none."""
    before: Callable[[str], Any] | None = vars(module).get("__getattr__")
    if before is None:
        return

    def getter(name: str) -> Any:
        ask(name, table, version)
        return before(name)

    module.__getattr__ = getter  # type: ignore[method-assign]
