"""Failures travel along data, name their push, spare independent ops, and can be cleared."""

from __future__ import annotations

import asyncio
import inspect
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from helpers.repository.checkout import ROOT

import cudasync as cs
from cudasync.engine import current
from cudasync.engine.device import device_push
from cudasync.engine.host import slots
from cudasync.engine.log import histories, planning
from cudasync.engine.log import node as nodes

PATIENCE_S = 20.0


@pytest.fixture(params=["async", "serial"])
def engine(request):
    engine = cs.Engine(request.param)
    yield engine
    engine.close()


def fail() -> None:
    raise ValueError("planned")


def test_a_failure_reaches_everyone_who_waits_and_names_its_push(engine):
    x = cs.Var("x")
    line = inspect.currentframe().f_lineno + 1
    op = engine.push(fail, writes=[x], name="load")
    dependent = engine.push(lambda: None, reads=[x])
    for wait in (op.wait, dependent.wait, x.wait, engine.waitall, op.result):
        with pytest.raises(cs.OpError, match="'load'") as caught:
            wait(PATIENCE_S)
        assert caught.value.op == "load"
        assert caught.value.push_site == f"{__file__}:{line}"
        assert isinstance(caught.value.cause, ValueError)
        assert caught.value.__cause__ is caught.value.cause
    assert dependent.exception().op == "load"


def test_dependents_do_not_run_and_others_do(engine):
    x, y, ran = cs.Var("x"), cs.Var("y"), []
    engine.push(fail, writes=[x])
    engine.push(lambda: ran.append("dependent"), reads=[x], writes=[y])
    engine.push(lambda: ran.append("second hand"), reads=[y])
    other = engine.push(lambda: ran.append("other"))
    other.wait(PATIENCE_S)
    with pytest.raises(cs.OpError):
        engine.waitall(PATIENCE_S)
    assert ran == ["other"]


def test_overwriting_heals_and_updating_does_not(engine):
    x, y = cs.Var("x"), cs.Var("y")
    engine.push(fail, writes=[x, y])
    engine.push(lambda: None, writes=[x])
    engine.push(lambda: None, reads=[y], writes=[y])
    x.wait(PATIENCE_S)
    with pytest.raises(cs.OpError):
        y.wait(PATIENCE_S)


def test_overwriting_a_view_with_gaps_hides_no_failure_in_between(engine):
    array = np.zeros(16, np.int32)
    engine.push(fail, writes=[array])
    every_other = engine.push(lambda: array[::2].fill(1), writes=[array[::2]])
    with pytest.raises(cs.OpError):
        every_other.wait(PATIENCE_S)
    with pytest.raises(cs.OpError):
        engine.push(lambda: None, reads=[array[1:2]]).wait(PATIENCE_S)
    # Views without gaps: whole rows, and any order of the axes.
    for whole in (array[4:8], array[::-1], array.reshape(4, 4).T, array.reshape(4, 4)[:, :]):
        engine.push(fail, writes=[array])
        engine.push(lambda: None, writes=[whole]).wait(PATIENCE_S)
        engine.push(lambda: None, reads=[whole]).wait(PATIENCE_S)
    engine.clear_errors()


def test_only_readers_of_a_failed_write_are_poisoned_not_later_writers(engine):
    x = cs.Var("x")
    engine.push(fail, reads=[x])
    engine.push(lambda: None, writes=[x]).wait(PATIENCE_S)
    x.wait(PATIENCE_S)
    engine.clear_errors()


def test_cleared_errors_are_forgotten(engine):
    x = cs.Var("x")
    op = engine.push(fail, writes=[x])
    engine.clear_errors()
    engine.waitall(PATIENCE_S)
    op.wait(PATIENCE_S)
    assert engine.push(lambda: 1, reads=[x]).result(PATIENCE_S) == 1


def test_waitall_raises_the_first_failure_in_push_order(engine):
    ops = [engine.push(fail, name=f"op {i}") for i in range(5)]
    for op in ops:
        op.exception(PATIENCE_S)
    with pytest.raises(cs.OpError) as caught:
        engine.waitall(PATIENCE_S)
    assert caught.value.op == "op 0"


def test_leaving_the_block_raises_what_failed():
    with pytest.raises(cs.OpError), cs.Engine() as engine:
        engine.push(fail)


def test_leaving_the_block_by_an_exception_keeps_that_exception():
    def leave() -> None:
        with cs.Engine() as engine:
            engine.push(fail)
            raise KeyError("first")

    with pytest.raises(KeyError):
        leave()


def test_a_timeout_raises_and_cancels_nothing():
    gate = threading.Event()
    with cs.Engine() as engine:
        op = engine.push(lambda: gate.wait(PATIENCE_S))
        for wait in (op.wait, op.result, op.exception, engine.waitall):
            with pytest.raises(TimeoutError):
                wait(timeout=0.01)
        gate.set()
        assert op.result(PATIENCE_S) is True


def test_a_closed_engine_says_so(engine):
    engine.push(lambda: None)
    engine.close()
    engine.close()
    with pytest.raises(cs.ClosedError, match="new one"):
        engine.push(lambda: None)
    with pytest.raises(cs.ClosedError):
        engine.__enter__()


def test_a_push_that_an_engine_closes_under_is_refused_and_not_lost(monkeypatch):
    for options in ({}, {"priority": 1}, {"device": cs.Device(0)}):
        engine = cs.Engine()

        def closing(real: Any, engine: cs.Engine = engine) -> Callable[..., Any]:
            def call(*arguments: Any) -> Any:
                monkeypatch.undo()
                engine.close()
                return real(*arguments)

            return call

        # Plain pushes, other pushes and pushes of device ops call these functions last before they
        # append.
        monkeypatch.setattr(inspect.getmodule(cs.Engine.push), "_getframe", closing(sys._getframe))
        monkeypatch.setattr(current, "maybe_inside", closing(current.maybe_inside))
        monkeypatch.setattr(device_push, "get_ident", closing(threading.get_ident))
        with pytest.raises(cs.ClosedError):
            engine.push(lambda *stream: None, name="late", **options)
        assert not engine._registered


def test_an_op_can_be_awaited(engine):
    async def main() -> int:
        with pytest.raises(cs.OpError):
            await engine.push(fail)
        return await engine.push(lambda: 42)

    assert asyncio.run(main()) == 42


def test_callbacks_run_once_before_or_after_the_end(engine):
    gate, seen = threading.Event(), []
    gate.set()
    op = engine.push(lambda: gate.wait(PATIENCE_S))
    op.add_done_callback(lambda: seen.append("early or late"))
    op.wait(PATIENCE_S)
    op.add_done_callback(lambda: seen.append("late"))
    assert seen == ["early or late", "late"]


def test_an_op_that_waits_for_itself_or_its_dependents_is_told():
    x, ops, are_pushed = cs.Var("x"), [], threading.Event()
    engine = cs.Engine(workers=2)
    waits = (lambda: ops[0].wait(), lambda: ops[1].wait(), x.wait, engine.waitall, engine.close)

    def outer() -> None:
        are_pushed.wait(PATIENCE_S)
        for wait in waits:
            with pytest.raises(cs.DeadlockError):
                wait()

    ops.append(engine.push(outer, writes=[x]))
    ops.append(engine.push(lambda: None, reads=[x]))
    are_pushed.set()
    ops[1].wait(PATIENCE_S)

    def enqueue(stream: cs.Stream) -> None:
        engine.push(lambda: None, reads=[x]).wait()

    failed = engine.push(enqueue, writes=[x], device=cs.Device(0)).exception(PATIENCE_S)
    assert isinstance(failed.cause, cs.DeadlockError)
    engine.close()


def test_waiting_again_and_again_with_a_timeout_leaves_no_trail():
    gate = threading.Event()
    with cs.Engine() as engine:
        op = engine.push(lambda: gate.wait(PATIENCE_S))
        for _ in range(10):
            with pytest.raises(TimeoutError):
                op.wait(timeout=0.0)
        assert not nodes.of(op).sleepers
        gate.set()


def test_waiting_on_oneself_in_a_serial_engine_is_a_deadlock_that_is_told():
    with cs.Engine("serial") as engine:
        x = cs.Var("x")

        def outer() -> None:
            with pytest.raises(cs.DeadlockError):
                engine.push(lambda: None, writes=[x]).wait()

        engine.push(outer, writes=[x]).wait()


@pytest.mark.parametrize(
    ("wrong", "error", "words"),
    [
        (lambda e: e.push(3), TypeError, "needs a function"),
        (lambda e: e.push(fail, reads=[object()]), TypeError, "reads= takes variables"),
        (lambda e: e.push(fail, writes=[3]), TypeError, "writes= takes variables"),
        (lambda e: e.push(fail, pool="none"), ValueError, "no worker pool 'none'"),
        (lambda e: e.push(fail, priority="high"), TypeError, "a priority is an integer"),
        (lambda e: e.push(fail, priority="1", device=0), TypeError, "a priority is an integer"),
        (lambda e: e.push(fail, device="0"), TypeError, "takes a Device or its ordinal"),
        (lambda e: cs.Engine("fast"), ValueError, "'async' or 'serial'"),
        (lambda e: cs.Engine(workers=0), ValueError, "at least 1 worker"),
        (lambda e: cs.Engine(streams=0), ValueError, "streams"),
        (lambda e: cs.Engine(max_in_flight=0), ValueError, "max_in_flight"),
        (lambda e: e.trace(), ValueError, "trace=True"),
    ],
)
def test_wrong_calls_are_refused_before_anything_is_pushed(engine, wrong, error, words):
    with pytest.raises(error, match=words):
        wrong(engine)
    assert engine.statistics().ops == 0


def test_an_interrupt_inside_a_push_reaches_the_pusher_and_leaves_no_op_behind(engine):
    def interrupted(stream: cs.Stream) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        engine.push(interrupted, device=cs.Device(0), name="interrupted")
    assert engine.push(lambda stream: 1, device=cs.Device(0)).result(PATIENCE_S) == 1
    with pytest.raises(cs.OpError, match="interrupted"):
        engine.waitall(PATIENCE_S)


def test_an_interrupt_in_a_deferred_device_op_costs_no_worker():
    x, gate = cs.Var("x"), threading.Event()

    def interrupted(stream: cs.Stream) -> None:
        raise KeyboardInterrupt

    engine = cs.Engine(workers=1)
    engine.push(lambda: gate.wait(PATIENCE_S), writes=[x])
    broken = engine.push(interrupted, reads=[x], device=cs.Device(0), name="interrupted")
    other = engine.push(lambda stream: "ran", reads=[x], device=cs.Device(0))
    gate.set()
    assert isinstance(broken.exception(PATIENCE_S).cause, KeyboardInterrupt)
    assert other.result(PATIENCE_S) == "ran"
    assert engine.push(lambda: "still here").result(PATIENCE_S) == "still here"
    engine.close()


@pytest.mark.parametrize(("module", "step"), [(histories, "find"), (planning, "_plan")])
def test_an_interrupt_in_the_middle_of_planning_costs_the_push_that_it_met_and_no_other(
    monkeypatch, module, step
):
    """This covers an op that can be issued at once, and an op that waits for a host op."""
    engine = cs.Engine()
    device, token, gate = cs.Device(0), cs.Var(), threading.Event()
    # This push creates the streams, and makes this thread the planner.
    engine.push(lambda stream: None, device=device).wait(PATIENCE_S)
    if module is planning:
        engine.push(lambda: gate.wait(PATIENCE_S), writes=[token])

    def interrupted(*arguments: object) -> None:
        monkeypatch.undo()
        raise KeyboardInterrupt

    monkeypatch.setattr(module, step, interrupted)
    with pytest.raises(KeyboardInterrupt):
        engine.push(lambda stream: None, reads=[token], device=device)
    assert engine.push(lambda stream: "ran", device=device).result(PATIENCE_S) == "ran"
    gate.set()
    engine.waitall(PATIENCE_S)
    engine.close()


FORK = """
import os, sys, threading
import cudasync as cs
gate = threading.Event()
engine = cs.engine()
op = engine.push(gate.wait, name="slow")
child = os.fork()
if child:
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    gate.set()
    assert op.result() is True
    sys.exit(code)
assert isinstance(op.exception().cause, cs.ClosedError)
try:
    engine.push(print)
except cs.ClosedError:
    pass
else:
    sys.exit("an engine of the parent took a push")
assert cs.engine().push(lambda: 42).result() == 42
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_child_neither_hangs_nor_runs_the_ops_of_its_parent():
    command = [sys.executable, "-W", "ignore", "-c", FORK]
    done = subprocess.run(command, cwd=ROOT, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0


def test_a_worker_that_can_not_start_is_not_counted_on(monkeypatch):
    def refuse(*_: object) -> None:
        monkeypatch.undo()
        raise RuntimeError("can't start new thread")

    engine = cs.Engine(workers=1)
    monkeypatch.setattr(slots, "start_new_thread", refuse)
    with pytest.raises(RuntimeError):
        engine.push(lambda: None)
    assert engine.push(lambda: "ran").result(PATIENCE_S) == "ran"
    engine.close()


def test_the_process_gets_a_new_engine_after_its_own_was_closed():
    first = cs.engine()
    assert cs.engine() is first
    first.close()
    second = cs.engine()
    assert second is not first
    assert second.push(lambda: 1).result(PATIENCE_S) == 1


def test_what_a_callback_raises_is_lost_whenever_it_runs(engine):
    op = engine.push(lambda: 1)
    op.wait(PATIENCE_S)
    op.add_done_callback(fail)
    assert op.result(PATIENCE_S) == 1


def test_the_first_failure_is_the_first_pushed_even_if_it_fails_last():
    gate = threading.Event()
    engine = cs.Engine(workers=2)

    def late() -> None:
        assert gate.wait(PATIENCE_S)
        raise ValueError("planned")

    engine.push(late, name="pushed first")
    engine.push(fail, name="failed first").exception(PATIENCE_S)
    gate.set()
    with pytest.raises(cs.OpError) as caught:
        engine.waitall(PATIENCE_S)
    assert caught.value.op == "pushed first"
    engine.close()
