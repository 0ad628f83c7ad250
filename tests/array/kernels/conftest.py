"""What the tests of replayed launches share."""

from __future__ import annotations

import pytest
from helpers.concurrency.interrupt_ground import KERNELS
from helpers.engine_programs.repeated_launches import Loop

import cudasync as cs
from cudasync.engine.replay import sequence
from cudasync.engine.replay.tape import LOCAL


@pytest.fixture
def no_launch_is_too_slow(monkeypatch):
    """A busy machine may suspend this thread between any two launches."""
    monkeypatch.setattr(sequence, "HOLD_S", 1e9)


@pytest.fixture
def engine():
    LOCAL.tape.forget()
    with cs.Engine(replay=True) as made:
        yield made


@pytest.fixture
def module():
    return cs.Module.from_file(KERNELS)


@pytest.fixture
def mix(module):
    return module.kernel("mix")


@pytest.fixture
def loop(mix, engine):
    return Loop(mix).until_replayed(engine)
