"""Cellar, abi. The answers of cudaGetErrorName and cudaGetErrorString for compiled programs.

The runtime's errors have names of their own and the driver's numbers. As in the driver, the string
is the sentence of the last call that failed with the code.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final

from cudasync.softgpu.abi.stub.error_strings import fixed_address, passing_address
from cudasync.softgpu.core.driver_types.result_codes import DriverFailure

if TYPE_CHECKING:
    from cudasync.softgpu.abi.stub.dispatch_table import FunctionTable

_UNKNOWN: Final = "unrecognized error code"
_OF_RUNTIME_ALONE: Final = {
    9: "invalid configuration argument",
    13: "invalid device symbol",
    21: "invalid copy direction for memcpy",
    98: "invalid device function",
}


@cache
def _names() -> dict[int, str]:
    from cuda.bindings import runtime

    return {int(error): error.name for error in runtime.cudaError_t}


def name_address(code: int) -> int:
    """The address of the name of an error."""
    return fixed_address(_names().get(code, _UNKNOWN))


def text_address(table: FunctionTable, code: int) -> int:
    """The address of an error's sentence; it stays valid while the next 255 are handed out."""
    if code in _OF_RUNTIME_ALONE:
        return fixed_address(_OF_RUNTIME_ALONE[code])
    try:
        return passing_address(table.details.text(code))
    except DriverFailure:
        return fixed_address(_UNKNOWN)
