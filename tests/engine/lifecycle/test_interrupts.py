"""Ctrl-C at any point of any call: all returned pushes finish, and the engine goes on.

`helpers/concurrency/interrupt_injector.py` defines the points, and
`helpers/concurrency/interrupt_scenes.py` defines the calls. A failure prints the line that replays
it: `python -m helpers.concurrency.interrupt_program LINE`, in `tests/`.
"""

from __future__ import annotations

import io
import re
import sys
from contextlib import contextmanager, suppress

import pytest
from helpers.concurrency import interrupt_ground
from helpers.concurrency.interrupt_ground import KERNELS, Ground
from helpers.concurrency.interrupt_injector import Interrupter, told_to_nobody
from helpers.concurrency.interrupt_scenes import SCENES
from helpers.driver.held_devices import engine_behind
from helpers.repository.subprocesses import run_module

import cudasync as cs
from cudasync.engine.device import device_push
from cudasync.engine.device.issue import Issuer
from cudasync.engine.lifecycle import interrupts, left_ops, shutdown
from cudasync.engine.log import node as nodes


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


def test_the_engine_is_whole_after_two_interrupts_at_points_taken_at_random():
    """The second one strikes a handler of the first."""
    assert_whole_after("all", "--pairs", "--sample", "3", deadline_s=120)


def first_failure(scene, points, seconds=(None,), plant=lambda: None):
    """The first error of a check after an interrupt, or after two, at such points of the scene; and
    its ground, which is not checked to its end. `plant()` is called behind a run without any."""
    kernel = cs.Module.from_file(KERNELS).kernel("mix")
    counter = None
    for _ in range(2):
        ground, counter = Ground(kernel), Interrupter(0)
        act = SCENES[scene](ground)
        with counter:
            act()
        ground.check()
    plant()
    for n in points(counter.count):
        for again in seconds:
            ground = Ground(kernel)
            act = SCENES[scene](ground)
            with told_to_nobody(), suppress(KeyboardInterrupt), Interrupter(n, again):
                act()
            try:
                ground.check(is_pair=again is not None)
            except (AssertionError, TimeoutError) as error:
                return error, ground
    return None, None


@pytest.mark.usefixtures("tracing_ends")
def test_an_op_that_is_issued_although_it_is_blocked_is_found(monkeypatch):
    def leave(op):
        """The planted bug: the push of a planned op that is interrupted lets the op be issued."""
        op._is_owned = False
        if nodes.is_planned(op):
            op._pool.put(op)

    monkeypatch.setattr(device_push, "leave", leave)
    error, ground = first_failure("push_device_behind_host", lambda count: range(count, 0, -1))
    assert "ran before the held op" in str(error)
    ground.gate.set()
    ground.engine.waitall()
    ground.engine.close()


@pytest.mark.usefixtures("tracing_ends")
def test_an_interrupted_op_that_ends_before_its_predecessors_is_found(monkeypatch):
    """The planted bug: the stream is thought to be behind waits that the interrupt prevented."""

    def only_failed(self, op, device, timeline, *, is_signal=True):
        self.enqueue(op, lambda stream, event: stream.record(event), device, timeline)

    monkeypatch.setattr(Issuer, "_issue_failed", only_failed)
    error, ground = first_failure("push_device_that_must_wait", lambda count: range(1, count + 1))
    assert "ran beside the held op" in str(error)
    monkeypatch.undo()
    ground.latch.release()
    ground.engine.close()


@pytest.mark.usefixtures("tracing_ends")
def test_a_claimed_op_that_nobody_ends_is_found(monkeypatch):
    """The planted bug: waiting threads do not look for ops that two interrupts have left."""

    def plant():
        monkeypatch.setattr(interrupt_ground, "PATIENCE_S", 2.0)
        for module in (left_ops, interrupt_ground):
            monkeypatch.setattr(module, "end_left", lambda engine: None)

    error, ground = first_failure("launch", lambda count: range(count, 0, -1), (1, 2, 3), plant)
    assert isinstance(error, TimeoutError)
    # Waiting threads look again.
    monkeypatch.undo()
    ground.check(is_pair=True)


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
@pytest.mark.parametrize("scene", SCENES)
def test_the_engine_is_whole_after_two_interrupts_at_each_pair_of_points(scene):
    assert_whole_after(scene, "--pairs", deadline_s=3600)


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
