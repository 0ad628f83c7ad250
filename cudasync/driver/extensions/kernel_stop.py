"""Floor 1. Stopping kernels that do not end, by functions of the software GPU's driver.

They are looked up by name, since no other driver has them. A kernel on a real GPU runs until it or
the process ends.
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
    """Report Ctrl-C: the driver may end a kernel that still blocks waits a second later."""
    function = _function(_NOTE)
    if function is not None:
        function()


def stop_kernels(device: Device, reason: str) -> bool:
    """End the kernels that run on `device`, which fails them; False if the driver cannot."""
    function = _function(_STOP)
    return function is not None and function(device.ordinal, reason.encode()) == 0
