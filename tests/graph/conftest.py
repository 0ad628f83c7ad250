"""Fixtures of the tests of graphs."""

from __future__ import annotations

from helpers.driver.held_devices import device, latch

__all__ = ["device", "latch"]
