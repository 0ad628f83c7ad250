"""Launches in sequence: the launch that an exception names, whenever the exception comes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pytest

import cudasync as cs
from cudasync.driver import Launch, Module
from cudasync.driver.kernels import launch_sequences as rows
from cudasync.driver.kernels.launch_sequences import LaunchSequence, failed_launch

COUNT = 3


class Interrupted(Sequence[Launch]):
    """Launches with an iteration that is interrupted before number `at`, or at the end."""

    def __init__(self, launches: list[Launch], at: int) -> None:
        self.launches = launches
        self.at = at

    def __len__(self) -> int:
        return len(self.launches)

    def __getitem__(self, index):
        return self.launches[index]

    def __iter__(self) -> Iterator[Launch]:
        for index, each in enumerate(self.launches):
            if index == self.at:
                raise KeyboardInterrupt
            yield each
        raise KeyboardInterrupt


@pytest.fixture
def launches() -> list[Launch]:
    kernel = Module.from_file("ptx/kernels/saxpy.ptx").kernel("saxpy")
    x = cs.DeviceBuffer(32)
    args = (np.float32(1), x, x, np.uint32(8))
    return [kernel.prepare(grid=1, block=8, args=args) for _ in range(COUNT)]


@pytest.mark.parametrize("at", range(COUNT + 1))
def test_who_is_interrupted_while_the_calls_are_worked_out_was_at_one_of_the_launches(launches, at):
    sequence = LaunchSequence(launches)
    with pytest.raises(KeyboardInterrupt) as raised:
        sequence.on(Interrupted(launches, at), cs.Stream())
    assert failed_launch(raised.value) == min(at, COUNT - 1)


@pytest.mark.parametrize("at", range(COUNT + 1))
def test_who_is_interrupted_while_the_driver_is_called_was_at_one_of_the_launches(
    launches, at, monkeypatch
):
    sequence, stream = LaunchSequence(launches), cs.Stream()
    sequence.on(launches, stream)
    starmap = rows.starmap

    def interrupted(function, arguments):
        for index, each in enumerate(starmap(function, arguments)):
            if index == at:
                raise KeyboardInterrupt
            yield each
        raise KeyboardInterrupt

    if at == 0:
        # The interrupt comes before the first launch has begun.
        def interrupted(function, arguments):
            raise KeyboardInterrupt

    monkeypatch.setattr(rows, "starmap", interrupted)
    with pytest.raises(KeyboardInterrupt) as raised:
        sequence.on(launches, stream)
    assert failed_launch(raised.value) == min(at, COUNT - 1)
    stream.synchronize()
