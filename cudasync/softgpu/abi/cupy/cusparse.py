"""Cellar, abi. CuPy's cuSPARSE module: it can be imported, and each of its functions is refused.

The classes and constants stay, because CuPy's sparse matrices name them when they are imported.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cudasync.softgpu.abi.cupy.runtime_module import refusal

if TYPE_CHECKING:
    from types import ModuleType

    from cudasync.softgpu.abi.stub.dispatch_table import FunctionTable

_NEEDS_NO_LIBRARY: Final = ("get_build_version", "is_cuda_python_build")
_WHY: Final = "it has only cuBLAS, cuFFT and cuRAND of CUDA's libraries"


def amend(module: ModuleType, _table: FunctionTable) -> None:
    """Refuse the module's functions by name."""
    for name, value in list(vars(module).items()):
        is_function = callable(value) and not isinstance(value, type)
        if is_function and not name.startswith("_") and name not in _NEEDS_NO_LIBRARY:
            setattr(module, name, refusal(f"cuSPARSE ({name})", _WHY))
