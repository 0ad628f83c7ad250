"""Fixtures of the tests of graphs."""

from __future__ import annotations

from helpers.devices import device, latch

__all__ = ["device", "latch"]
