"""Floor 1, graphs. cuGraphExecUpdate, called without the binding.

The binding does not return the reason of a failure. So the address comes from cuGetProcAddress and
is called through ctypes.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

from cuda.bindings import driver

from cudasync.driver.result import check

if TYPE_CHECKING:
    from collections.abc import Callable

# The version of CUDA that introduced this form of the function, as cuGetProcAddress counts.
_SINCE = 12000
_PREFIX = "CU_GRAPH_EXEC_UPDATE_ERROR"


class _Info(ctypes.Structure):
    """CUgraphExecUpdateResultInfo."""

    _fields_ = (
        ("result", ctypes.c_int),
        ("node", ctypes.c_void_p),
        ("from_node", ctypes.c_void_p),
    )


_PROTOTYPE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.POINTER(_Info))
_entry: Callable[..., int] | None = None


def update(executable: int, graph: int) -> tuple[int, str, int]:
    """The driver's code; if it is not 0, also the reason, and the node of the graph or 0."""
    global _entry
    if _entry is None:
        address = check(
            driver.cuGetProcAddress(b"cuGraphExecUpdate", _SINCE, 0), "cuGetProcAddress"
        )
        _entry = _PROTOTYPE(int(address[0]))
    info = _Info()
    code = _entry(executable, graph, ctypes.byref(info))
    if not code:
        return 0, "", 0
    name = str(driver.CUgraphExecUpdateResult(info.result).name)
    return code, name.removeprefix(_PREFIX).strip("_").lower().replace("_", " "), info.node or 0
