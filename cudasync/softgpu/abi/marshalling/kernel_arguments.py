"""Cellar. The arguments of a launch, in either of the driver's two forms."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

from cudasync.softgpu.abi.marshalling.pointers import get_u64, need
from cudasync.softgpu.core.driver_types.result_codes import INVALID_VALUE, DriverFailure

if TYPE_CHECKING:
    from cudasync.softgpu.core.modules.modules import Function

# CU_LAUNCH_PARAM_*: the pairs in `extra`.
_END, _BUFFER_POINTER, _BUFFER_SIZE = 0, 1, 2


def pack(function: Function, parameters: int, extra: int) -> bytes:
    """Copy the arguments, in either form, into a parameter block."""
    if parameters:
        if extra:
            raise DriverFailure(
                INVALID_VALUE, f"kernel {function.name}: give kernelParams or extra, not both"
            )
        return function.packing.pack(parameters)
    block = bytearray(function.kernel.parameter_size)
    if extra:
        data = _extra_buffer(extra)
        if len(data) > len(block):
            raise DriverFailure(
                INVALID_VALUE,
                f"kernel {function.name} takes {len(block)} bytes of arguments, not {len(data)}",
            )
        block[: len(data)] = data
    elif function.places:
        raise DriverFailure(INVALID_VALUE, f"kernel {function.name} takes arguments: pass them")
    return bytes(block)


def _extra_buffer(extra: int) -> bytes:
    buffer = size = 0
    while (key := get_u64(extra)) != _END:
        if key == _BUFFER_POINTER:
            buffer = get_u64(extra + 8)
        elif key == _BUFFER_SIZE:
            size = get_u64(get_u64(extra + 8))
        else:
            raise DriverFailure(INVALID_VALUE, f"extra has the unknown key {key}")
        extra += 16
    if size:
        need(buffer, size)
    return ctypes.string_at(buffer, size) if size else b""
