"""Cellar, abi. CuPy's module of random generators, whose kernels are machine code: refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from cudasync.softgpu.abi.cupy.runtime_module import refusal

if TYPE_CHECKING:
    from types import ModuleType

    from cudasync.softgpu.abi.stub.dispatch_table import FunctionTable

_WHY: Final = (
    "its kernels are compiled into CuPy for other devices; cupy.random.RandomState and the "
    "functions of cupy.random draw numbers here"
)


def amend(module: ModuleType, _table: FunctionTable) -> None:
    """Refuse to create a generator, or to fill the state of one."""
    refuse = refusal("cupy.random.Generator", _WHY)

    class Generator:
        """Refused: see the module."""

        def __init__(self, *_arguments: Any) -> None:
            refuse()

    for name in ("init_curand", "random_raw"):
        setattr(module, name, refusal(f"cupy.random's bit generators ({name})", _WHY))
    module.Generator = Generator  # type: ignore[attr-defined]
