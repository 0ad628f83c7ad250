"""A push may come from code that Python runs unasked, in the middle of another push.

Such code is a finaliser, a callback of the garbage collector, a signal handler or an op's callback.
"""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial

import pytest
from helpers.concurrency.thread_crew import PATIENCE_S, Crew, engine_of, hasty
from helpers.repository.subprocesses import assert_runs_clean

import cudasync as cs
from cudasync.engine import serial


@contextmanager
def eager_collector() -> Iterator[None]:
    """Run the garbage collector at nearly every allocation."""
    before = gc.get_threshold()
    gc.set_threshold(5, 2, 2)
    try:
        yield
    finally:
        gc.set_threshold(*before)


class Cycle:
    """Garbage that only the collector finds. Its finaliser calls `at_end`."""

    def __init__(self, at_end) -> None:
        self.me = self
        self.at_end = at_end

    def __del__(self) -> None:
        self.at_end()


@pytest.mark.parametrize("mode", ["async", "serial"])
def test_a_finaliser_may_push_in_the_middle_of_a_push(mode):
    x, y, log, ended = cs.Var("x"), cs.Var("y"), [], []
    with engine_of(mode=mode, workers=2) as engine:

        def at_end() -> None:
            ended.append(engine.push(lambda: log.append("end"), reads=[y], writes=[x]))

        with eager_collector():
            for _ in range(300):
                Cycle(at_end)
                engine.push(lambda: log.append("push"), reads=[x], writes=[y])
        gc.collect()
        engine.waitall(PATIENCE_S)
        assert len(ended) == 300
        assert all(op.done() for op in ended)
        assert log.count("end") == log.count("push") == 300


def test_finalisers_push_while_many_threads_push():
    x, y, log = cs.Var("x"), cs.Var("y"), []
    with engine_of(workers=2) as engine, hasty(), eager_collector(), Crew() as crew:

        def at_end() -> None:
            engine.push(lambda: log.append("end"), writes=[y, x])

        def pusher(variables: list[cs.Var]) -> None:
            for _ in range(150):
                Cycle(at_end)
                engine.push(lambda: log.append("push"), writes=variables)

        for variables in ([x, y], [y, x], [y]):
            crew.start(pusher, variables)
        crew.join()
        # A collection during another thread's collection does nothing.
        for _ in range(100):
            gc.collect()
            engine.waitall(PATIENCE_S)
            if len(log) == 900:
                break
        assert log.count("end") == log.count("push") == 450


def test_what_an_op_held_may_push_when_it_goes_with_the_op():
    """The op has the last reference, so the object ends on a worker, between two ops."""
    x, log = cs.Var("x"), []

    class Held:
        pass

    with engine_of(workers=1) as engine:

        def at_end() -> None:
            engine.push(lambda: log.append("end"), reads=[x], writes=[x])

        def use(held: Held) -> None:
            log.append("push")

        for _ in range(200):
            held = Held()
            weakref.finalize(held, at_end).atexit = False
            engine.push(lambda held=held: use(held), writes=[x])
            del held
        engine.push(lambda: None, reads=[x]).wait(PATIENCE_S)
        engine.waitall(PATIENCE_S)
        gc.collect()
        engine.waitall(PATIENCE_S)
        assert log.count("push") == log.count("end") == 200


def test_a_result_may_push_when_it_goes_with_its_op():
    log: list[str] = []
    with engine_of(workers=1) as engine:

        class Result:
            def __del__(self) -> None:
                engine.push(lambda: log.append("end"))

        for _ in range(50):
            engine.push(Result).wait(PATIENCE_S)
        gc.collect()
        engine.waitall(PATIENCE_S)
        assert len(log) == 50


def test_a_callback_of_the_collector_may_push():
    x, log, pushed = cs.Var("x"), [], []
    with engine_of(workers=2) as engine:
        pusher = threading.get_ident()

        def collected(phase: str, info: dict[str, int]) -> None:
            if threading.get_ident() == pusher:
                pushed.append(engine.push(lambda: log.append(phase), writes=[x]))

        gc.callbacks.append(collected)
        try:
            with eager_collector():
                for number in range(200):
                    engine.push(lambda: [[]], reads=[x])
                    if number % 50 == 0:
                        # A build without a GIL rarely collects by itself.
                        gc.collect()
        finally:
            gc.callbacks.remove(collected)
        engine.waitall(PATIENCE_S)
        assert len(log) == len(pushed) > 0


def test_a_callback_of_an_op_may_push_and_that_is_waited_for():
    log: list[int] = []
    with engine_of(workers=1) as engine:

        def chain(left: int) -> None:
            log.append(left)
            if left:
                engine.push(lambda: None).add_done_callback(lambda: chain(left - 1))

        has_ended = threading.Event()
        engine.push(lambda: None).add_done_callback(lambda: (chain(50), has_ended.set()))
        assert has_ended.wait(PATIENCE_S)
        engine.waitall(PATIENCE_S)
        while log[-1]:
            engine.push(lambda: None).wait(PATIENCE_S)
        assert log == list(range(50, -1, -1))


def pushed_in_the_middle(at, act):
    """Push on a serial engine; call `act(engine, x)` before instruction `at` of its dispatcher.

    Returns the ops of the program, what has run, and the number of instructions.
    """
    dispatcher = serial.__file__
    x, y, log, passed = cs.Var("x"), cs.Var("y"), [], 0
    with cs.Engine() as other, cs.Engine("serial") as engine:

        def look(frame, event, _):
            nonlocal passed
            if frame.f_code.co_filename != dispatcher:
                return None
            frame.f_trace_opcodes = True
            if event == "opcode":
                passed += 1
                if passed == at:
                    sys.settrace(None)
                    act(engine, x)
            return look

        ops = []
        before = other.push(lambda: log.append("before"), writes=[y])
        sys.settrace(look)
        try:
            for name in "abc":
                ops.append(engine.push(partial(log.append, name), reads=[x, y], writes=[x]))
                ops[-1].wait(PATIENCE_S)
        finally:
            sys.settrace(None)
        before.wait(PATIENCE_S)
        engine.waitall(PATIENCE_S)
    return ops, log, passed


def differences_if_pushed_in_the_middle():
    """What goes wrong if a finaliser pushes, or a handler pushes and waits, at some point."""
    found, nested, runs = [], [], []

    def push(engine, x):
        nested.append(engine.push(lambda: runs.append(1), writes=[x]))

    def push_and_wait(engine, x):
        push(engine, x)
        with suppress(cs.DeadlockError):
            nested[0].wait(PATIENCE_S)

    for act in (push, push_and_wait):
        at = 1
        while True:
            nested.clear()
            runs.clear()
            try:
                ops, log, passed = pushed_in_the_middle(at, act)
            except Exception as error:
                found.append(f"{act.__name__} at {at}: {error!r}")
            else:
                if passed < at:
                    break
                if not all(op.finished and op.failure is None for op in ops + nested):
                    found.append(f"{act.__name__} at {at}: an op failed")
                if [each for each in log if each != "before"] != list("abc"):
                    found.append(f"{act.__name__} at {at}: {log}")
                if runs != [1]:
                    found.append(f"{act.__name__} at {at}: {len(runs)} runs")
            at += 1
    return found


@pytest.mark.usefixtures("tracing_ends")
def test_a_push_at_each_point_of_a_serial_push_comes_behind_it_or_before():
    assert differences_if_pushed_in_the_middle() == []


@pytest.mark.usefixtures("tracing_ends")
def test_a_nested_serial_push_that_thinks_itself_alone_is_found(monkeypatch):
    def submit(self, op):
        with self._turn:
            self._end_left(op._engine)
            serial.COMBINER.log.append(op)
            self._queue.append(op)
            serial.COMBINER.plan(op)
            while self._queue:
                self._run_next()

    monkeypatch.setattr(serial.SerialDispatcher, "submit", submit)
    assert differences_if_pushed_in_the_middle()


SIGNALS = """
x, y, log, pushed = cs.Var("x"), cs.Var("y"), [], []
device = cs.Device(0)
engine = cs.Engine(workers=2)

def handler(number, frame):
    pushed.append(engine.push(lambda: log.append("signal"), reads=[y], writes=[x]))
    if len(pushed) % 7 == 0:
        pushed.append(engine.push(lambda s: log.append("signal"), writes=[x, y], device=device))
    # Not by an interval: a handler that takes longer would nest in itself without end. None is
    # under way at the end: to ignore one that has come, Python says on stderr.
    if len(pushed) < SIGNALS_WANTED:
        signal.setitimer(signal.ITIMER_REAL, 1e-4)

signal.signal(signal.SIGALRM, handler)
signal.setitimer(signal.ITIMER_REAL, 1e-4)
count = 0
while len(pushed) < SIGNALS_WANTED:
    engine.push(lambda: log.append("push"), reads=[x], writes=[y])
    engine.push(lambda: log.append("push"), writes=[y, x]).wait(PATIENCE_S)
    engine.push(lambda stream: log.append("push"), writes=[x], device=device)
    count += 3
    if count % 30 == 0:
        engine.waitall(PATIENCE_S)
engine.waitall(PATIENCE_S)
assert all(op.done() for op in pushed)
assert (log.count("push"), log.count("signal")) == (count, len(pushed)), (count, len(pushed))
engine.close()
"""


def test_a_signal_handler_may_push_in_the_middle_of_a_push():
    assert_runs_clean(SIGNALS.replace("SIGNALS_WANTED", "1500"))


@pytest.mark.slow
def test_a_signal_handler_may_push_by_the_ten_thousand():
    assert_runs_clean(SIGNALS.replace("SIGNALS_WANTED", "30_000"), deadline_s=300)
