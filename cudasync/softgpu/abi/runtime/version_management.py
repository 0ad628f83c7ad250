"""Cellar, abi. Runtime API, Version Management: a client's runtime version is its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.softgpu.abi.runtime.table import driver_function, runtime_function

if TYPE_CHECKING:
    from cudasync.softgpu.core.machine import Machine


@runtime_function("cudaDriverGetVersion", "p", in_context=False)
def cuda_driver_get_version(machine: Machine, version: int) -> int | None:
    return driver_function("cuDriverGetVersion")(machine, version)
