"""Fixtures for key-value stores."""

from __future__ import annotations

from contextlib import suppress

import pytest

import cudasync as cs


@pytest.fixture(scope="session", autouse=True)
def devices_begin_anew():
    """Tests of the software GPU reset devices by the driver, and the library goes on with memory
    that is gone then. It is told before the first test here."""
    with suppress(cs.CudasyncError):
        # What those left behind is nobody's affair here.
        cs.waitall()
    for ordinal in range(cs.device_count()):
        cs.Device(ordinal).reset()
    cs.engine().clear_errors()
