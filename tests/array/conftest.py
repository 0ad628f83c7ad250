"""Fixtures of the tests of arrays."""

from __future__ import annotations

from helpers.devices import device, latch

__all__ = ["device", "latch"]
