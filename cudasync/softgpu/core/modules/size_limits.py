"""Cellar. Size limits that the assembler enforces: memory of a block, a thread or a module.

Source: the CUDA programming guide's table of technical specifications; the wording is ptxas'.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.errors import PtxError
from cudasync.ptx.types import StateSpace
from cudasync.softgpu.core.driver_types.device_limits import (
    MAX_CONSTANT_BYTES,
    MAX_LOCAL_BYTES,
    MAX_PARAMETER_BYTES,
    MAX_PARAMETER_BYTES_SINCE_8_1,
    MAX_SHARED_BYTES,
)

if TYPE_CHECKING:
    from cudasync.ptx import ir
    from cudasync.softgpu.interface.launch import CompiledModule


def check_sizes(source: ir.Module, compiled: CompiledModule) -> None:
    """PtxError for constants, or for the first kernel, beyond the limits."""
    constants = sum(each.size for each in source.variables if each.space is StateSpace.CONST)
    if constants > MAX_CONSTANT_BYTES:
        amount = _of(constants, MAX_CONSTANT_BYTES)
        raise PtxError(f"File uses too much global constant data ({amount})")
    found = excess(source.version, compiled)
    if found is not None:
        raise _at(source, *found)


def excess(version: tuple[int, int], compiled: CompiledModule) -> tuple[str, str] | None:
    """The first kernel beyond the limits of PTX of this version, and why; None if there is none."""
    is_new = version >= (8, 1)
    parameters = MAX_PARAMETER_BYTES_SINCE_8_1 if is_new else MAX_PARAMETER_BYTES
    for name, kernel in compiled.kernels.items():
        for what, size, most in (
            ("shared data", kernel.static_shared_bytes, MAX_SHARED_BYTES),
            ("local memory", kernel.local_bytes, MAX_LOCAL_BYTES),
            ("parameter space", kernel.parameter_size, parameters),
        ):
            if size > most:
                return name, f"Entry function '{name}' uses too much {what} ({_of(size, most)})"
        if kernel.max_threads < 1:
            return name, "Positive non-zero value expected for maxntid"
    return None


def _of(size: int, most: int) -> str:
    return f"{size:#x} bytes, {most:#x} max"


def _at(source: ir.Module, name: str, why: str) -> PtxError:
    span = next(each.span for each in source.functions if each.name == name and each.is_kernel)
    return PtxError(why, file=source.file, line=span.line, column=span.column)
