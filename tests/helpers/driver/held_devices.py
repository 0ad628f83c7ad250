"""Fixtures for tests that hold a device's work back; a room's `conftest.py` imports them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import cudasync as cs
from cudasync.testing import Latch


@pytest.fixture
def device() -> cs.Device:
    return cs.Device(0)


@pytest.fixture
def latch(device: cs.Device) -> Iterator[Latch]:
    with Latch(device) as held:
        yield held


@contextmanager
def engine_behind(latch: Latch, **options: Any) -> Iterator[cs.Engine]:
    """A current engine. Work that the latch holds is released before the engine closes."""
    engine = cs.Engine(**options)
    with cs.use(engine):
        yield engine
    latch.release()
    engine.close()
