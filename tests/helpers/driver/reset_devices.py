"""Resets of all devices by the library itself."""

from __future__ import annotations

from contextlib import suppress

import cudasync as cs


def begin_anew() -> None:
    """Tests of the software GPU reset devices by the driver, and so free memory that the library
    still uses. A reset by the library tells it so."""
    with suppress(cs.CudasyncError):
        # Errors of earlier tests are ignored.
        cs.waitall()
    for ordinal in range(cs.device_count()):
        cs.Device(ordinal).reset()
    cs.engine().clear_errors()
