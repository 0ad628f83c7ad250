"""Cellar, abi. The mathematical libraries that CuPy is linked with: stand-ins, or refusals.

CuPy asks for a library by the name of its own module, and then loads that module, which is linked
with the library's SONAME. So a stand-in is loaded when the module's name is asked for.
"""

from __future__ import annotations

import importlib
from contextlib import contextmanager, suppress
from importlib.machinery import PathFinder
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

from cudasync.softgpu.abi.cupy.linked_functions import functions_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import ModuleType

    from cudasync.softgpu.abi.stub.dispatch_table import FunctionTable

_ROOM: Final = "cudasync.softgpu.abi.math_libraries"
_PACKAGE: Final = "cupy_backends.cuda.libs"
STOOD_IN_FOR: Final = ("cublas", "cufft", "curand")
REFUSED_AT_CALLS: Final = {"cusparse": "cuSPARSE"}
"""Libraries whose modules can be imported: each function is refused when it is called."""
REFUSED: Final = {
    "cusolver": "cuSOLVER",
    "cusparselt": "cuSPARSELt",
    "cutensor": "cuTENSOR",
    "nccl": "NCCL",
}

_loaded: dict[str, Any] = {}


def ask(name: str, table: FunctionTable, version: Callable[[], int]) -> None:
    """Load the stand-in for a library; ImportError if the library is refused."""
    if name in REFUSED:
        raise ImportError(
            f"{REFUSED[name]} is not supported by the software GPU: it has only cuBLAS, cuFFT and "
            "cuRAND of CUDA's libraries"
        )
    if name == "nvrtc":
        _find_nvrtc()
    if name in STOOD_IN_FOR and name not in _loaded:
        room: Any = importlib.import_module(f"{_ROOM}.{name}.library")
        _loaded[name] = room.load(table, version() // 1000)
    if name in REFUSED_AT_CALLS and name not in _loaded:
        room = importlib.import_module(f"{_ROOM}.{name}")
        _loaded[name] = room.load(table, _functions_of(name))


def _functions_of(name: str) -> list[str]:
    """The library's functions that CuPy's module of this name is linked with."""
    package: Any = importlib.import_module(_PACKAGE)
    found = PathFinder.find_spec(f"{_PACKAGE}.{name}", package.__path__)
    return functions_of(found.origin, name) if found is not None and found.origin else []


def _find_nvrtc() -> None:
    """Load NVRTC from its wheel, if there is one: CuPy 13 only asks the loader for it."""
    with suppress(Exception):
        pathfinder: Any = importlib.import_module("cuda.pathfinder")
        pathfinder.load_nvidia_dynamic_lib("nvrtc")


@contextmanager
def loaded(name: str) -> Iterator[None]:
    """Inside this context, a search for the library `name` finds the stand-in, which is loaded.

    NVIDIA's own search would first load the libraries that NVIDIA's library needs. The module
    looks its newest functions up by the handle.
    """
    pathfinder: Any = importlib.import_module("cuda.pathfinder")
    search = pathfinder.load_nvidia_dynamic_lib
    handle = _loaded[name][0].handle

    def load(wanted: str) -> Any:
        return SimpleNamespace(_handle_uint=handle) if wanted == name else search(wanted)

    pathfinder.load_nvidia_dynamic_lib = load
    try:
        yield
    finally:
        pathfinder.load_nvidia_dynamic_lib = search


def amend(module: ModuleType, table: FunctionTable, version: Callable[[], int]) -> None:
    """Make the module's `__getattr__` call `ask` first; packages of CuPy 13 have none."""
    before: Callable[[str], Any] | None = vars(module).get("__getattr__")
    if before is None:
        return

    def getter(name: str) -> Any:
        ask(name, table, version)
        if name in REFUSED_AT_CALLS:
            return importlib.import_module(f"{_PACKAGE}.{name}")
        return before(name)

    module.__getattr__ = getter  # type: ignore[method-assign]
