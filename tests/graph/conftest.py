"""Fixtures of the tests of graphs."""

from __future__ import annotations

import pytest
from helpers.driver.held_devices import device, latch

from cudasync.graph.passes import unroll

__all__ = ["device", "latch"]


@pytest.fixture
def rounds_stay(monkeypatch):
    """No `repeat` is written out, however few its rounds are: for tests of blocks themselves."""
    monkeypatch.setattr(unroll, "MOST", 0)
    monkeypatch.setattr(unroll, "MOST_JOINED", 0)
