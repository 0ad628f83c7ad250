"""Fixtures of the tests of arrays."""

from __future__ import annotations

from helpers.driver.held_devices import device, latch

__all__ = ["device", "latch"]
