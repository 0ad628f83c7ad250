"""Cellar, abi. CuPy's module of CUB, whose kernels are machine code that gives wrong numbers here.

What CuPy asks first answers "not possible", and CuPy goes on with kernels of its own; what a
program calls by itself is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from cudasync.softgpu.abi.cupy.runtime_module import refusal

if TYPE_CHECKING:
    from types import ModuleType

    from cudasync.softgpu.abi.stub.dispatch_table import FunctionTable

_ASKED_FIRST: Final = ("cub_reduction", "cub_scan", "cub_histogram")
_REFUSED: Final = ("device_reduce", "device_segmented_reduce", "device_scan", "device_histogram")


def amend(module: ModuleType, _table: FunctionTable) -> None:
    """Take the functions that launch kernels out of the module."""
    for name in _ASKED_FIRST:
        setattr(module, name, _not_possible)
    for name in _REFUSED:
        why = "CUB is compiled into CuPy for other devices; CuPy's own functions do the same"
        setattr(module, name, refusal(f"cupy.cuda.cub.{name}", why))


def _not_possible(*_arguments: Any, **_keywords: Any) -> None:
    """What CuPy's functions answer where CUB can not do something."""
