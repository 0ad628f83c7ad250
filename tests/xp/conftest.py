"""Fixtures for the tests of array computation."""

from __future__ import annotations

import pytest
from helpers.driver.reset_devices import begin_anew


@pytest.fixture(scope="session", autouse=True)
def devices_begin_anew():
    begin_anew()
