"""Floor 1. Kernels that do not end: a driver that can end them has functions for it.

No other driver has them, so they are asked for by name. The software GPU has them; a kernel on a
real GPU runs until it ends, or the process does.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import TYPE_CHECKING, Any

from cudasync.driver.probe import LIBRARY, ensure_driver

if TYPE_CHECKING:
    from cudasync.driver.device import Device

_NOTE, _STOP = "cudasyncNoteInterrupt", "cudasyncStopKernels"


@cache
def _function(name: str) -> Any:
    """The driver's function, or None."""
    ensure_driver()
    return getattr(ctypes.CDLL(LIBRARY), name, None)


def note_interrupt() -> None:
    """Say that Ctrl-C came: a kernel that keeps others waiting a second later may be ended."""
    function = _function(_NOTE)
    if function is not None:
        function()


def stop_kernels(device: Device, reason: str) -> bool:
    """End what runs on `device`, which fails with it; False where the driver cannot."""
    function = _function(_STOP)
    return function is not None and function(device.ordinal, reason.encode()) == 0
