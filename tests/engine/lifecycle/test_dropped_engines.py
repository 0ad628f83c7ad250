"""An engine goes out of scope without being closed: its work is done, and no thread stays."""

from __future__ import annotations

import gc
import threading
import weakref

from helpers.concurrency.thread_crew import (
    PATIENCE_S,
    engine_threads,
    engine_threads_end,
    held_by,
    lasting_engine_threads,
)

import cudasync as cs


def test_an_engine_that_is_dropped_finishes_its_work_and_leaves_no_thread():
    before = lasting_engine_threads()
    gate, x, ran = threading.Event(), cs.Var("x"), []
    have_run = {name: threading.Event() for name in ("compute", "io", "device")}

    def run(name: str) -> None:
        ran.append(name)
        have_run[name].set()

    engine = cs.Engine(workers=2, pools={"io": 1})
    holds = threading.Event()
    engine.push(held_by(gate, holds), writes=[x])
    engine.push(lambda: run("compute"), reads=[x])
    engine.push(lambda: run("io"), reads=[x], pool="io")
    last = engine.push(lambda stream: run("device"), reads=[x], device=cs.Device(0))
    gone = weakref.ref(engine)
    assert holds.wait(PATIENCE_S)
    assert engine_threads() - before
    del engine
    gc.collect()
    gate.set()
    last.wait(PATIENCE_S)
    x.wait(PATIENCE_S)
    assert all(event.wait(PATIENCE_S) for event in have_run.values())
    # A variable may remember the last ops that used it, and an op refers to its engine.
    del last, x
    for _ in range(3):
        gc.collect()
    assert engine_threads_end(before)
    gc.collect()
    assert sorted(ran) == ["compute", "device", "io"]
    assert gone() is None


def test_engines_that_are_dropped_idle_leave_no_thread():
    before = lasting_engine_threads()
    for _ in range(20):
        engine = cs.Engine(workers=1)
        seen = engine.push(engine_threads).result(PATIENCE_S)
        assert seen - before
        del engine
    gc.collect()
    assert engine_threads_end(before)
