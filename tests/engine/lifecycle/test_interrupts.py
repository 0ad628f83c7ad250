"""Ctrl-C at any point of any call: all returned pushes finish, and the engine goes on.

`helpers/concurrency/interrupt_injector.py` defines the points, and
`helpers/concurrency/interrupt_scenes.py` defines the calls. A failure prints the line that replays
it: `python -m helpers.concurrency.interrupt_program LINE`, in `tests/`.
"""

from __future__ import annotations

import io
import re
import sys
from contextlib import contextmanager

import pytest
from helpers.concurrency.interrupt_injector import Interrupter
from helpers.concurrency.interrupt_scenes import KERNELS, Ground
from helpers.driver.held_devices import engine_behind
from helpers.repository.subprocesses import run_module

import cudasync as cs
from cudasync.engine.lifecycle import interrupts, shutdown


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


@contextmanager
def held_behind_an_op_that_is_over(patches, device, latch):
    """An engine that loses its patience at once. Nobody has asked for the end of the first op."""
    # A longer wait would ask for all ops.
    for limit in ("GRACE_S", "_PATIENCE_S", "_LOOK_S"):
        patches.setattr(shutdown, limit, 0.0)
    with engine_behind(latch) as engine:
        x = cs.Var("x")
        engine.push(lambda stream: None, writes=[x], device=device, name="over")
        engine.push(latch.hold, writes=[x], device=device, name="held")
        yield engine


def test_an_op_that_is_over_is_not_called_endless(monkeypatch, device, latch):
    with held_behind_an_op_that_is_over(monkeypatch, device, latch) as engine:
        interrupts.note(engine)
        with pytest.raises(cs.CudasyncError, match=r"^op 'held', .* still runs on device 0 stream"):
            engine.clear_errors()
        monkeypatch.undo()
        latch.release()
        engine.clear_errors()


def test_a_program_that_ends_does_not_wait_for_an_op_that_is_over(monkeypatch, device, latch):
    told = []

    class Stderr(io.StringIO):
        def write(self, text):
            told.append(text)
            latch.release()
            return len(text)

    with held_behind_an_op_that_is_over(monkeypatch, device, latch) as engine:
        monkeypatch.setattr(sys, "stderr", Stderr())
        shutdown.leave(engine, None)
        monkeypatch.undo()
    (line,) = told
    assert re.match(r"cudasync: the program has ended: op 'held', [^;]* runs on device 0", line)
