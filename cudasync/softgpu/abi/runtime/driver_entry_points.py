"""Cellar, abi. Runtime API, Driver Entry Point Access."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cudasync.softgpu.abi.runtime.table import driver_function, runtime_function

if TYPE_CHECKING:
    from cudasync.softgpu.core.machine import Machine

# The version of the runtime that this table represents.
_VERSION: Final = 13000
_GET: Final = ("cuGetProcAddress", 12000)


@runtime_function("cudaGetDriverEntryPoint", "pplp", in_context=False)
def cuda_get_driver_entry_point(
    machine: Machine, symbol: int, function: int, flags: int, status: int
) -> int | None:
    return driver_function(*_GET)(machine, symbol, function, _VERSION, flags, status)


@runtime_function("cudaGetDriverEntryPointByVersion", "ppulp", in_context=False)
def cuda_get_driver_entry_point_by_version(
    machine: Machine, symbol: int, function: int, version: int, flags: int, status: int
) -> int | None:
    return driver_function(*_GET)(machine, symbol, function, version, flags, status)
