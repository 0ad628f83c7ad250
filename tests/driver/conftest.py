"""Fixtures of the driver's tests: a device, a stream on it, and a latch released at the end."""

from __future__ import annotations

import pytest

from cudasync.driver import Device, Stream
from cudasync.testing import Latch


@pytest.fixture
def device():
    return Device(0)


@pytest.fixture
def stream(device):
    with_work = Stream(device)
    yield with_work
    with_work.close()


@pytest.fixture
def latch(device, stream):
    # The fixture depends on the stream, so that the latch is released before the stream is closed.
    with Latch(device) as held:
        yield held
