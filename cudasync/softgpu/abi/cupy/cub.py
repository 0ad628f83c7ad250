"""Cellar, abi. CuPy's CUB module, whose kernels are machine code that gives wrong numbers here.

Functions that CuPy tries first answer "not possible", and CuPy goes on with its own kernels.
Functions that a program calls itself are refused.
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
    """Replace the module's functions that launch kernels."""
    for name in _ASKED_FIRST:
        setattr(module, name, _not_possible)
    for name in _REFUSED:
        why = "CuPy's CUB kernels are machine code for other devices: use CuPy's own functions"
        setattr(module, name, refusal(f"cupy.cuda.cub.{name}", why))


def _not_possible(*_arguments: Any, **_keywords: Any) -> None:
    """The answer that CuPy expects if CUB cannot do something."""
