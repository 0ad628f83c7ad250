"""Waits, results, timeouts, and failures that travel through many ops of all kinds."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest
from helpers.concurrency.thread_crew import PATIENCE_S, Crew, engine_of, hasty, held_by

import cudasync as cs
from cudasync.engine.op_classes import Fence
from cudasync.testing import Latch

KERNELS = Path(__file__).parents[2] / "helpers" / "kernels.ptx"


@pytest.fixture(params=["async", "serial"])
def any_engine(request):
    with engine_of(mode=request.param, workers=2) as engine:
        yield engine


def fail() -> None:
    raise ValueError("planned")


@pytest.mark.parametrize(
    "value", [None, 0, "", (), ValueError("returned"), cs.ClosedError("returned"), print]
)
def test_whatever_a_function_returns_is_the_result(any_engine, value):
    op = any_engine.push(lambda: value)
    assert op.result(PATIENCE_S) is value
    assert op.result(0) is value
    assert op.exception() is None
    on_device = any_engine.push(lambda stream: value, device=cs.Device(0))
    assert on_device.result(PATIENCE_S) is value


def test_what_is_done_needs_no_time(any_engine):
    x = cs.Var("x")
    op = any_engine.push(lambda: 1, writes=[x])
    op.wait(PATIENCE_S)
    for timeout in (0, 0.0, 1e-9, -1.0):
        op.wait(timeout)
        assert op.result(timeout) == 1
        x.wait(timeout)


def test_a_timeout_of_a_wait_for_many_ends_it_and_cancels_none_of_them():
    gate = threading.Event()
    variables = [cs.Var() for _ in range(20)]
    with engine_of(workers=2) as engine:
        ops = [engine.push(held_by(gate), writes=[variable]) for variable in variables]
        for timeout in (0, 0.001):
            for wait in (engine.waitall, variables[-1].wait):
                with pytest.raises(TimeoutError):
                    wait(timeout)
        gate.set()
        engine.waitall(timeout=PATIENCE_S)
        assert all(op.done() for op in ops)


def test_a_timeout_inside_an_op_is_that_ops_failure_and_no_one_elses():
    gate = threading.Event()
    with engine_of(workers=1) as engine:
        held = engine.push(held_by(gate))
        impatient = engine.push(lambda: held.wait(0.001), pool=None)
        gate.set()
        held.wait(PATIENCE_S)
        error = impatient.exception(PATIENCE_S)
        assert error is None or isinstance(error.cause, TimeoutError)
        engine.clear_errors()


def test_a_wait_for_a_held_stream_times_out_and_can_be_made_again():
    device, x = cs.Device(0), cs.Var("x")
    with Latch(device) as latch, engine_of() as engine:
        op = engine.push(latch.hold, writes=[x], device=device)
        for wait in (op.wait, x.wait, engine.waitall, op.result, op.exception):
            with pytest.raises(TimeoutError):
                wait(0.001)
        assert not op.done()
        latch.release()
        for wait in (op.wait, x.wait, engine.waitall):
            wait(PATIENCE_S)


@pytest.mark.parametrize("error", [SystemExit, GeneratorExit, KeyboardInterrupt, StopIteration])
def test_any_exception_of_a_function_is_its_ops_and_costs_no_worker(error):
    def leave() -> None:
        raise error("planned")

    with engine_of(workers=1) as engine:
        other = engine.push(lambda: None)
        op = engine.push(leave, name="leaver")
        # A wait might run the op here, and an interrupt is raised in the thread that runs the op.
        ended = threading.Event()
        op.add_done_callback(ended.set)
        assert ended.wait(PATIENCE_S)
        assert isinstance(op.exception().cause, error)
        other.wait(PATIENCE_S)
        assert engine.push(lambda: "ran").result(PATIENCE_S) == "ran"
        engine.clear_errors()


def test_poison_travels_through_ops_of_every_kind_to_the_far_end(any_engine):
    """Host op, copy in, kernel, device op, copy out, host op: each carries the first failure."""
    device = cs.Device(0)
    mix = cs.Module.from_file(KERNELS).kernel("mix")
    host, back = cs.pinned_empty((8,), np.int32), cs.pinned_empty((8,), np.int32)
    token, ran = cs.Var("token"), []
    x, y = cs.zeros(8, np.int32), cs.zeros(8, np.int32)
    cs.waitall(PATIENCE_S)
    first = any_engine.push(fail, writes=[host], name="decode")
    ops = [
        first,
        cs.copy(x, host),
        mix[1, 8](y, x, np.int32(1), np.uint32(8)),
        any_engine.push(lambda stream: ran.append("device"), reads=[y], writes=[y], device=device),
        cs.copy(back, y),
        any_engine.push(lambda: ran.append("host"), reads=[back], writes=[token]),
        any_engine.push(lambda: ran.append("last"), reads=[token]),
    ]
    errors = [op.exception(PATIENCE_S) for op in ops]
    assert [error.op for error in errors] == ["decode"] * 7
    assert {error.push_site for error in errors} == {first.push_site}
    assert len({id(error.cause) for error in errors}) == 1
    assert len({id(error) for error in errors}) == 7
    for wait in (token.wait, x.wait, y.numpy, any_engine.waitall):
        with pytest.raises(cs.OpError, match="'decode'"):
            wait()
    assert ran == []
    any_engine.clear_errors()
    for wait in (token.wait, x.wait, any_engine.waitall, *(op.wait for op in ops)):
        wait(PATIENCE_S)
    mix[1, 8](y, x, np.int32(1), np.uint32(8)).wait(PATIENCE_S)


def test_two_poisons_meet_and_the_healed_branch_stays_healed(any_engine):
    x, y, z = (cs.Var(name) for name in "xyz")
    any_engine.push(fail, writes=[x], name="one")
    any_engine.push(fail, writes=[y], name="two")
    both = any_engine.push(lambda: None, reads=[y, x], writes=[z])
    assert both.exception(PATIENCE_S).op in ("one", "two")
    any_engine.push(lambda: None, writes=[z]).wait(PATIENCE_S)
    z.wait(PATIENCE_S)
    any_engine.push(lambda: None, reads=[z]).wait(PATIENCE_S)
    with pytest.raises(cs.OpError, match="'one'"):
        any_engine.waitall(PATIENCE_S)
    any_engine.clear_errors()


def test_a_failure_after_a_clearing_is_raised_anew(any_engine):
    x = cs.Var("x")
    for name in ("first", "second", "third"):
        any_engine.push(fail, writes=[x], name=name)
        with pytest.raises(cs.OpError, match=name):
            x.wait(PATIENCE_S)
        with pytest.raises(cs.OpError, match=name):
            any_engine.waitall(PATIENCE_S)
        any_engine.clear_errors()
        any_engine.waitall(PATIENCE_S)
        any_engine.push(lambda: None, reads=[x], writes=[x]).wait(PATIENCE_S)


def test_waiters_in_many_threads_each_get_an_error_of_their_own():
    gate, x, errors = threading.Event(), cs.Var("x"), []

    def fail_late() -> None:
        assert gate.wait(PATIENCE_S)
        fail()

    with engine_of(workers=1) as engine, hasty():
        op = engine.push(fail_late, writes=[x], name="broken")
        waiting = threading.Barrier(7)

        def waiter(wait) -> None:
            waiting.wait(PATIENCE_S)
            with pytest.raises(cs.OpError) as caught:
                wait(PATIENCE_S)
            errors.append(caught.value)

        with Crew() as crew:
            for wait in (op.wait, op.result, x.wait) * 2:
                crew.start(waiter, wait)
            waiting.wait(PATIENCE_S)
            gate.set()
        engine.clear_errors()
    assert len({id(error) for error in errors}) == 6
    assert {error.op for error in errors} == {"broken"}


def test_errors_are_cleared_while_others_push_and_fail():
    """After clearing, a thread sees no earlier failure. A failure never ends an independent op."""
    x = cs.Var("x")
    with engine_of(workers=2) as engine, hasty(), Crew() as crew:

        def pusher() -> None:
            for _ in range(60):
                engine.push(fail, writes=[x])
                engine.push(lambda: None, reads=[x], writes=[x])
                assert engine.push(lambda: "apart").result(PATIENCE_S) == "apart"

        def clearer() -> None:
            for _ in range(60):
                engine.clear_errors()

        for fn in (pusher, pusher, clearer):
            crew.start(fn)
        crew.join()
        engine.clear_errors()
        engine.waitall(PATIENCE_S)
        x.wait(PATIENCE_S)


def test_whoever_polls_for_all_leaves_nothing_behind():
    gate, begun = threading.Event(), threading.Event()
    with engine_of(workers=1) as engine:
        engine.push(held_by(gate, begun))
        assert begun.wait(PATIENCE_S)
        for _ in range(300):
            with pytest.raises(TimeoutError):
                engine.waitall(0.0)
        assert len(engine._registered) <= 3
        gate.set()
        engine.waitall(PATIENCE_S)


def test_polls_between_pushes_wait_for_each_other_and_end_without_recursion():
    """Each poll is ordered behind the previous poll, and not behind all ops again."""
    gate, begun, ran = threading.Event(), threading.Event(), []
    with engine_of(workers=1) as engine:
        engine.push(held_by(gate, begun))
        assert begun.wait(PATIENCE_S)
        for number in range(2000):
            engine.push(lambda number=number: ran.append(number))
            with pytest.raises(TimeoutError):
                engine.waitall(0.0)
        fences = [op for op in engine._registered if isinstance(op, Fence)]
        assert len(fences) > 1000
        assert all(len(each._node.gate.before) <= 3 for each in fences[1:])
        gate.set()
        engine.waitall(PATIENCE_S)
        assert ran == list(range(2000))
