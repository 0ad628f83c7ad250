"""The library on devices that it has reset itself."""

from __future__ import annotations

from contextlib import suppress

import cudasync as cs


def begin_anew() -> None:
    """Tests of the software GPU reset devices by the driver, and the library goes on with memory
    that is gone then. It is told here."""
    with suppress(cs.CudasyncError):
        # What those left behind is nobody's affair.
        cs.waitall()
    for ordinal in range(cs.device_count()):
        cs.Device(ordinal).reset()
    cs.engine().clear_errors()
