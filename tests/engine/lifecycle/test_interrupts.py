"""Ctrl-C at any point of any call: all returned pushes finish, and the engine goes on.

`helpers/concurrency/interrupt_injector.py` defines the points, and
`helpers/concurrency/interrupt_scenes.py` defines the calls. A failure prints the line that replays
it: `python -m helpers.concurrency.interrupt_program LINE`, in `tests/`.
"""

from __future__ import annotations

import sys

import pytest
from helpers.concurrency.interrupt_injector import Interrupter
from helpers.concurrency.interrupt_scenes import KERNELS, Ground
from helpers.repository.subprocesses import run_module

import cudasync as cs


def assert_whole_after(*options: str, deadline_s: float) -> None:
    code, printed = run_module(
        "helpers.concurrency.interrupt_program", *options, deadline_s=deadline_s
    )
    # If Ctrl-C leaves ops that had not begun, the engine prints a line about them.
    told = [
        line for line in printed.splitlines() if not line.startswith("cudasync: left by Ctrl-C")
    ]
    assert (code, told) == (0, [])


def test_the_engine_is_whole_after_an_interrupt_at_points_taken_at_random():
    assert_whole_after("all", "--sample", "5", deadline_s=60)


def test_the_engine_is_whole_after_a_signal_at_random_times():
    assert_whole_after("all", "--timer", "15", deadline_s=60)


def test_an_interrupted_launch_gives_its_stream_back_wherever_it_was():
    assert_whole_after("launch", deadline_s=60)


def test_a_stream_that_nobody_gave_back_is_found():
    ground = Ground(cs.Module.from_file(KERNELS).kernel("mix"))
    op = ground.push("new", device=ground.device)
    op.wait()
    (device,) = ground.engine._issuer.devices.values()
    timeline = device.compute.timelines[0]
    assert timeline.take(op)
    with pytest.raises(AssertionError, match="nobody gave back"):
        ground.check_streams(patience_s=0)
    timeline.give_back(op)
    ground.check()


@pytest.mark.slow
def test_the_engine_is_whole_after_an_interrupt_at_each_point():
    assert_whole_after("all", deadline_s=600)


@pytest.mark.slow
def test_the_engine_is_whole_after_thousands_of_signals():
    assert_whole_after("all", "--timer", "1000", deadline_s=600)


@pytest.mark.usefixtures("tracing_ends")
def test_what_traces_is_kept_for_as_long_as_the_interrupter():
    """CPython 3.11 may call the trace function once more after an interrupt ended the tracing."""
    with Interrupter(0) as interrupter:
        tracing = sys.gettrace()
    assert any(each is tracing for each in vars(interrupter).values())
