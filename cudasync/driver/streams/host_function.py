"""Floor 1. cuLaunchHostFunc, called without the binding.

The binding wraps the given function in its own function, which takes the GIL on the driver's
thread. That can deadlock: a thread that holds the GIL may wait for that stream. So the address
comes from cuGetProcAddress and is called through ctypes.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

from cuda.bindings import driver

from cudasync.driver.result import check, failure

if TYPE_CHECKING:
    from collections.abc import Callable

_PROTOTYPE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)

# The version of CUDA that introduced the function, as cuGetProcAddress counts.
_SINCE = 10000

_entry: Callable[[int, int, int], int] | None = None


def refuse_python(function: object) -> None:
    """Raise TypeError or ValueError for anything but the address of a native function."""
    if isinstance(function, bool) or not isinstance(function, int):
        raise TypeError(
            "a host function is the address of a native function, not a "
            f"{type(function).__name__}: Python must not run on the driver's thread"
        )
    if not function:
        raise ValueError("the address of the native function is 0")


def launch_host_function(stream: int, function: int, user_data: int) -> None:
    """Enqueue a call of the native `function(user_data)`. The context is current."""
    global _entry
    if _entry is None:
        address = check(
            driver.cuGetProcAddress(b"cuLaunchHostFunc", _SINCE, 0), "cuGetProcAddress"
        )[0]
        _entry = _PROTOTYPE(int(address))
    code = _entry(stream, function, user_data)
    if code:
        raise failure(code, "cuLaunchHostFunc")
