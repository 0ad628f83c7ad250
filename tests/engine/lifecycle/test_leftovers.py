"""Ops leave behind only what their variables need, and no thread of a dead engine."""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from contextlib import suppress

import numpy as np
import pytest
from helpers.concurrency.thread_crew import (
    PATIENCE_S,
    Crew,
    engine_of,
    engine_threads,
    engine_threads_end,
    held_by,
    lasting_engine_threads,
)
from helpers.repository.reachability import refers_to_itself
from helpers.repository.subprocesses import assert_runs_clean

import cudasync as cs
from cudasync.engine.log.node import JoinGate, Node
from cudasync.engine.op import Op

# The number of pushes before a wait.
ROUND = 500


class Thing:
    """An object for weak references."""


def collect() -> int:
    """Collect all present garbage; returns the number of objects.

    `gc.collect` does nothing while another thread's earlier collection runs.
    """
    found, begun = 0, gc.get_stats()[2]["collections"]
    while gc.get_stats()[2]["collections"] < begun + 2:
        found += gc.collect()
    return found


def blocks() -> int:
    collect()
    return sys.getallocatedblocks()


def is_freed(gone: weakref.ref[Thing], engine: cs.Engine) -> bool:
    """True once the object is freed. A worker that falls asleep may keep it a little longer."""
    for _ in range(200):
        engine.push(lambda: None).wait(PATIENCE_S)
        gc.collect()
        if gone() is None:
            return True
    return False


def push_onto(engine: cs.Engine, variables: list[cs.Var], pushes: int) -> None:
    """Push ops that read two variables and write a third, cycling through all variables."""
    count = len(variables)
    for index in range(pushes):
        reads = [variables[index % count], variables[(7 * index + 3) % count]]
        engine.push(int, reads=reads, writes=[variables[(11 * index + 5) % count]])
        if index % 1000 == 999:
            engine.waitall(PATIENCE_S)


@pytest.mark.parametrize("pushes", [8000, pytest.param(200_000, marks=pytest.mark.slow)])
def test_memory_does_not_grow_with_the_number_of_ops(pushes):
    variables = [cs.Var() for _ in range(64)]
    with engine_of(workers=2) as engine:
        push_onto(engine, variables, 3000)
        before = blocks()
        push_onto(engine, variables, pushes)
        assert blocks() - before < 2000


def test_memory_does_not_grow_in_a_program_that_never_waits_for_all():
    """Only back-pressure bounds the ops in flight."""
    variables = [cs.Var() for _ in range(64)]
    with engine_of(workers=2, max_in_flight=100) as engine:

        def push(pushes: int) -> None:
            for index in range(pushes):
                engine.push(int, reads=[variables[index % 64]], writes=[variables[index % 63]])

        push(3000)
        before = blocks()
        push(8000)
        assert blocks() - before < 8000


def test_readers_that_have_finished_do_not_pile_up_on_a_variable_that_is_never_written():
    x = cs.Var("x")
    data = np.zeros(8)
    with engine_of(workers=2) as engine:

        def read(count: int) -> None:
            for _ in range(count):
                engine.push(int, reads=[x, data])
            engine.waitall(PATIENCE_S)

        read(2000)
        before = blocks()
        read(10_000)
        assert blocks() - before < 2000


def test_device_ops_that_have_finished_leave_nothing_behind():
    device, x = cs.Device(0), cs.Var("x")
    with engine_of(workers=1) as engine:

        def push(count: int) -> None:
            for index in range(count):
                engine.push(lambda stream: None, writes=[x], device=device)
                if index % 3 == 0:
                    engine.push(int, reads=[x])
            engine.waitall(PATIENCE_S)

        push(600)
        before = blocks()
        push(3000)
        assert blocks() - before < 2000


def test_ops_that_waited_for_each_other_go_without_the_garbage_collector():
    """Each op has a record and a plan that refers to the op. No reference cycle may remain."""
    device, x = cs.Device(0), cs.Var("x")
    with engine_of(workers=1) as engine:
        collect()
        before = sum(isinstance(each, Op | Node | JoinGate) for each in gc.get_objects())
        gc.disable()
        try:
            for _ in range(500):
                engine.push(lambda stream: None, writes=[x], device=device)
                engine.push(int, reads=[x])
            engine.waitall(PATIENCE_S)
            left = [
                type(each) for each in gc.get_objects() if isinstance(each, Op | Node | JoinGate)
            ]
            # A superseded thread may have planned a few ops twice.
            assert len(left) - before < 50
        finally:
            gc.enable()


class Refused(Exception):
    """The one exception that ops raise here."""


@pytest.mark.parametrize("device", [None, 0])
@pytest.mark.parametrize("is_behind", [False, True])
def test_an_op_that_failed_goes_without_the_garbage_collector(device, is_behind):
    """The traceback refers to the frames that issued the op. None of them may refer to the op."""

    def fail(*_: object) -> None:
        raise Refused

    def push(engine: cs.Engine) -> None:
        x, gate = cs.zeros(4) if device == 0 else np.zeros(4), threading.Event()
        if is_behind:
            engine.push(lambda: gate.wait(PATIENCE_S), writes=[x])
        engine.push(fail, writes=[x], device=device)
        gate.set()
        with suppress(cs.OpError):
            engine.waitall(PATIENCE_S)

    with engine_of(workers=1) as engine:
        push(engine)
        collect()
        gc.disable()
        try:
            for _ in range(20):
                push(engine)
                engine.clear_errors()
            gc.set_debug(gc.DEBUG_SAVEALL)
            collect()
            refused = [each for each in gc.garbage if isinstance(each, Refused)]
            assert not any(refers_to_itself(each, gc.garbage) for each in refused)
        finally:
            gc.set_debug(0)
            gc.garbage.clear()
            gc.enable()


def test_variables_and_arrays_that_come_and_go_leave_nothing_behind():
    with engine_of(workers=2) as engine:

        def use(count: int) -> None:
            for index in range(count):
                x, data = cs.Var(), np.zeros(16)
                engine.push(int, reads=[data], writes=[x])
                engine.push(int, reads=[x], writes=[data[3:9]])
                if index % 100 == 0:
                    engine.waitall(PATIENCE_S)
            engine.waitall(PATIENCE_S)

        use(500)
        before = blocks()
        use(3000)
        assert blocks() - before < 2000


@pytest.mark.parametrize("mode", ["async", "serial"])
@pytest.mark.parametrize("place", ["host", "device"])
def test_a_function_and_what_it_holds_go_when_the_op_has_finished(mode, place):
    """The op itself is still referenced, and its variable remembers it."""
    x = cs.Var("x")
    device = cs.Device(0) if place == "device" else None
    with engine_of(mode=mode, workers=1) as engine:
        thing = Thing()
        gone = weakref.ref(thing)
        op = engine.push(lambda *_, thing=thing: None, writes=[x], device=device)
        del thing
        op.wait(PATIENCE_S)
        engine.waitall(PATIENCE_S)
        assert is_freed(gone, engine)
        assert op.done()


def test_a_result_goes_with_its_op():
    x = cs.Var("x")
    with engine_of(workers=1) as engine:
        op = engine.push(Thing, writes=[x])
        gone = weakref.ref(op.result(PATIENCE_S))
        engine.push(lambda: None).wait(PATIENCE_S)
        gc.collect()
        assert gone() is not None
        del op
        # The variable may remember its last writer until the next write.
        engine.push(lambda: None, writes=[x]).wait(PATIENCE_S)
        assert is_freed(gone, engine)


def test_a_result_of_a_device_op_goes_with_its_op():
    x, device = cs.Var("x"), cs.Device(0)
    with engine_of(workers=1) as engine:
        op = engine.push(lambda stream: Thing(), writes=[x], device=device)
        gone = weakref.ref(op.result(PATIENCE_S))
        del op
        engine.push(lambda stream: None, writes=[x], device=device).wait(PATIENCE_S)
        assert is_freed(gone, engine)


def test_what_a_failed_op_held_goes_too_and_its_dependents_with_it():
    x, y = cs.Var("x"), cs.Var("y")

    def fail(thing: Thing) -> None:
        raise ValueError("planned")

    with engine_of(workers=1) as engine:
        things = [Thing(), Thing()]
        gone = [weakref.ref(thing) for thing in things]
        engine.push(lambda thing=things[0]: fail(thing), writes=[x])
        engine.push(lambda thing=things[1]: None, reads=[x], writes=[y])
        del things
        engine.clear_errors()
        engine.push(lambda: None, writes=[x, y]).wait(PATIENCE_S)
        # The poisoned op never ran. The failed op's frame is in the traceback of its error.
        assert is_freed(gone[1], engine)
        assert is_freed(gone[0], engine)


@pytest.mark.parametrize("how", ["host", "device", "launch"])
def test_a_failure_that_is_kept_keeps_nothing_of_what_comes_after_it(how):
    """The traceback refers to frames of the engine, which must not refer to a planner.

    The test has its own process for two reasons. A frame that a tracer looked at keeps objects that
    it has released since. Failures of other tests can refer to objects here.
    """
    assert_runs_clean(
        f"""
        from concurrent.futures import ThreadPoolExecutor
        from helpers.repository.reachability import kept_by
        from cudasync import driver
        from cudasync.engine.log.combiner import COMBINER
        from cudasync.engine.log.epoch import Epoch

        how, x, device = {how!r}, cs.Var("x"), cs.Device(0)

        def fail(stream=None):
            raise ValueError("planned")

        with cs.Engine(workers=1) as engine, cs.use(engine):
            if how == "launch":
                saxpy = cs.Module.from_file("ptx/kernels/saxpy.ptx").kernel("saxpy")
                data, count = cs.zeros(8, np.float32), np.uint32(8)
                launch = saxpy.prepare(grid=1, block=8, args=(np.float32(1), data, data, count))
                launch.push().wait(PATIENCE_S)
                driver.Module.close(saxpy.module)
                op = launch.push()
            else:
                op = engine.push(fail, writes=[x], device=device if how == "device" else None)
            # Not waited for: who waits may plan, and here the worker is to.
            never = threading.Event()
            while not op.done():
                never.wait(0.001)
            error = op.exception()
            assert error is not None
            with ThreadPoolExecutor(1) as other:
                for _ in range(200):
                    other.submit(COMBINER.take).result(PATIENCE_S)
                    COMBINER.take()
            kept = kept_by(op, error, kind=Epoch)
            assert kept < 20, kept
        """,
    )


@pytest.mark.parametrize("mixed", [False, True])
def test_an_op_that_runs_for_long_keeps_nothing_of_what_is_pushed_meanwhile(mixed):
    """The worker that runs the op went through the log, and other threads have superseded it.

    The test has its own process, because objects that an earlier test left can refer to more.
    """
    assert_runs_clean(
        f"""
        import gc, threading
        from cudasync.atomic import Segment
        from cudasync.engine.log.combiner import SEGMENT
        from cudasync.engine.log.epoch import Epoch

        gate, begun = threading.Event(), threading.Event()
        with cs.Engine(workers=2) as engine:
            engine.push(lambda: (begun.set(), gate.wait()))
            begun.wait()
            for _ in range(6 * SEGMENT // {ROUND}):
                for _ in range({ROUND}):
                    engine.push(int)
                if {mixed}:
                    # Who pushes takes over, and a worker again.
                    engine.push(lambda stream: None, device=0)
                engine.push(int).wait()
            kept = [type(each) for each in gc.get_objects() if isinstance(each, Segment | Epoch)]
            gate.set()
        assert kept.count(Segment) < 4, kept.count(Segment)
        assert kept.count(Epoch) < 100, kept.count(Epoch)
        """,
        deadline_s=60,
    )


def test_a_callback_goes_when_it_has_been_called():
    with engine_of(workers=1) as engine:
        thing = Thing()
        gone = weakref.ref(thing)
        op = engine.push(lambda: None)
        op.add_done_callback(lambda thing=thing: None)
        del thing
        op.wait(PATIENCE_S)
        assert is_freed(gone, engine)


def test_an_engine_that_is_closed_goes_with_all_its_threads():
    before = lasting_engine_threads()
    x = cs.Var("x")
    engine = cs.Engine(workers=3, pools={"io": 2})
    together = threading.Barrier(5)
    for pool in (*["compute"] * 3, "io"):
        engine.push(lambda: together.wait(PATIENCE_S), pool=pool)
    together.wait(PATIENCE_S)
    op = engine.push(lambda stream: None, writes=[x], device=cs.Device(0))
    engine.push(int, reads=[x])
    op.wait(PATIENCE_S)
    assert len(engine_threads() - before) >= 4
    engine.close()
    assert engine_threads_end(before)
    gone = weakref.ref(engine)
    del engine, op, x
    gc.collect()
    assert gone() is None


def test_waits_that_time_out_leave_nothing_behind():
    gate = threading.Event()
    with engine_of(workers=1) as engine, Crew() as crew:
        op = engine.push(held_by(gate))

        def wait_in_vain(times: int) -> None:
            for _ in range(times):
                with suppress(TimeoutError):
                    op.wait(0.0)

        wait_in_vain(100)
        before = blocks()
        crew.start(wait_in_vain, 2000)
        wait_in_vain(2000)
        crew.join()
        assert blocks() - before < 500
        gate.set()
