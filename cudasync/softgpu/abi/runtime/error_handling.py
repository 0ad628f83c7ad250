"""Cellar, abi. Runtime API, Error Handling. Names of errors need no driver, and are not here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.softgpu.abi.runtime.table import enter_plain, forget_error, last_error

if TYPE_CHECKING:
    from cudasync.softgpu.core.machine import Machine


def cuda_get_last_error(_machine: Machine) -> int:
    """The thread's last error, which is then reset to success."""
    code = last_error()
    forget_error()
    return code


def cuda_peek_at_last_error(_machine: Machine) -> int:
    """The thread's last error, which is kept."""
    return last_error()


enter_plain("cudaGetLastError", "", cuda_get_last_error)
enter_plain("cudaPeekAtLastError", "", cuda_peek_at_last_error)
