"""Cellar, abi. Waits for CuPy to be imported, and puts its modules above the software GPU.

Some of CuPy's modules carry NVIDIA's runtime as machine code. One is loaded and then redirected to
our functions (`runtime_module.py`). Others have kernels in machine code, which would give *wrong
numbers* here, so they are replaced before any part of them is loaded.
"""

from __future__ import annotations

import importlib
import os
import sys
from contextlib import nullcontext
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import spec_from_loader
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import ModuleType

    from cudasync.softgpu.abi.cupy.runtime_module import Compile
    from cudasync.softgpu.abi.stub.dispatch_table import FunctionTable

_ROOM: Final = "cudasync.softgpu.abi.cupy"
_PACKAGES: Final = ("cupy", "cupy_backends", "cupyx")
_RUNTIME: Final = "cupy_backends.cuda.api.runtime"
_CUSPARSE: Final = "cupy_backends.cuda.libs.cusparse"
_AMENDED: Final = {
    "cupy.cuda.cub": "cub",
    "cupy.random._generator_api": "random.generator_api",
    _CUSPARSE: "cusparse",
}
_ASKING: Final = ("cupy.cuda", "cupy_backends.cuda.libs")
"""The packages that load a library before they import the module that is linked with it."""
_LINKED: Final = ("cupy_backends.cuda.libs.", "cupy.cuda.cufft")
_REPLACED: Final = {"cupy.cuda.thrust": "thrust"}
# PTX runs here; CUB's machine code for sums and scans does not.
_ENVIRONMENT: Final = {"CUPY_COMPILE_WITH_PTX": "1", "CUPY_ACCELERATORS": ""}


class CupyFinder:
    """Finds the modules of CuPy that are redirected or replaced, and nothing else."""

    def __init__(self, table: FunctionTable, compile_functions: Compile) -> None:
        self._table = table
        self._compile = compile_functions

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not name.startswith("cupy"):
            return None
        if name in _PACKAGES:
            os.environ.update(_ENVIRONMENT)
        if name.startswith(_LINKED):
            _libraries().ask(name.rpartition(".")[2], self._table, _version)
        if name == _RUNTIME or name in _AMENDED or name in _ASKING:
            found = PathFinder.find_spec(name, path)
            if found is not None and found.loader is not None:
                loader: Any = _Amended(found.loader, self._amendment(name))
                found.loader = loader
            return found
        if name in _REPLACED and PathFinder.find_spec(name, path) is not None:
            replaced: Any = _Replaced(_REPLACED[name], self._table)
            return spec_from_loader(name, replaced)
        return None

    def _amendment(self, name: str) -> Callable[[ModuleType], None]:
        def amend(module: ModuleType) -> None:
            if name == _RUNTIME:
                room: Any = importlib.import_module(f"{_ROOM}.runtime_module")
                room.lead(module, self._table, self._compile)
            elif name in _ASKING:
                _libraries().amend(module, self._table, _version)
            else:
                room = importlib.import_module(f"{_ROOM}.{_AMENDED[name]}")
                room.amend(module, self._table)

        return amend


def _libraries() -> Any:
    return importlib.import_module(f"{_ROOM}.libraries")


def _version() -> int:
    """The version of CUDA that this CuPy was built for."""
    runtime: Any = importlib.import_module(_RUNTIME)
    version: int = runtime.runtimeGetVersion()
    return version


class _Amended:
    """Loads a module as its own loader does, and then removes the parts that cannot run."""

    def __init__(self, loader: Any, amend: Callable[[ModuleType], None]) -> None:
        self._loader = loader
        self._amend = amend

    def create_module(self, spec: ModuleSpec) -> Any:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        is_searching = module.__name__ == _CUSPARSE
        with _libraries().loaded("cusparse") if is_searching else nullcontext():
            self._loader.exec_module(module)
        self._amend(module)


class _Replaced:
    """Loads a module of this room in place of one of CuPy's."""

    def __init__(self, room: str, table: FunctionTable) -> None:
        self._room = room
        self._table = table

    def create_module(self, _spec: ModuleSpec) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        room: Any = importlib.import_module(f"{_ROOM}.{self._room}")
        room.fill(module, self._table)


def await_cupy(table: FunctionTable, compile_functions: Compile) -> None:
    """Redirect CuPy when it is imported; a CuPy imported before stays unchanged."""
    if _RUNTIME not in sys.modules:
        sys.meta_path.insert(0, CupyFinder(table, compile_functions))
