"""Runs at the start of Python, in every process that a program under `run` starts.

The folder of this file leads PYTHONPATH in these processes (a worker of multiprocessing, a script
that a script starts). So they use the software GPU as their driver too. The import of cuda.bindings
or CuPy puts it in place. Another sitecustomize in the path runs as well.
"""

from __future__ import annotations

import importlib.util
import sys
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

_HERE = Path(__file__).resolve().parent
_BINDINGS = "cuda.bindings"
_CUPY = ("cupy", "cupy_backends")


class _WithSoftwareGpu:
    """A loader that puts the software GPU in place.

    It does so after the import of the bindings, which the software GPU needs itself, and before the
    import of CuPy, which looks for a driver.
    """

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def exec_module(self, module: ModuleType) -> None:
        if module.__name__ != _BINDINGS:
            _place()
        self._loader.exec_module(module)
        if module.__name__ == _BINDINGS:
            _place()


def _place() -> None:
    """Put the software GPU in place, once."""
    if _Finder in sys.meta_path:
        sys.meta_path.remove(_Finder)
    if importlib.util.find_spec("cudasync") is None:
        sys.path.append(str(_HERE.parents[2]))
    from cudasync.driver.probe import place_software_gpu

    place_software_gpu()


class _Finder:
    """Finds the bindings and CuPy; a call of find_spec alone does not load them."""

    @classmethod
    def find_spec(
        cls, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != _BINDINGS and name not in _CUPY:
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _WithSoftwareGpu(spec.loader)  # type: ignore[assignment]
        return spec


def _read_the_other() -> None:
    """Run the sitecustomize that this file hides, if there is one."""
    elsewhere = [folder for folder in sys.path if Path(folder).resolve() != _HERE]
    spec = PathFinder.find_spec("sitecustomize", elsewhere)
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


sys.meta_path.insert(0, _Finder)
_read_the_other()
